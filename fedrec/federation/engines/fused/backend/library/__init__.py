"""The functions of C that kernels call, and the module that reads them."""
