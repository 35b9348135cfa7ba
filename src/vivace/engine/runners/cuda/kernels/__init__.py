"""The CUDA C++ sources, and what compiles and launches them."""
