"""From files to matrices as the kernels read them."""
