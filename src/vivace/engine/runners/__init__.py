"""What computes: the seam (`base`), llama.cpp, and our own kernels for NVIDIA GPUs."""
