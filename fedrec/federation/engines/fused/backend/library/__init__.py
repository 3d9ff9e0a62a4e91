"""The functions that kernels call, as files of C and CUDA, and the module that chooses among them."""
