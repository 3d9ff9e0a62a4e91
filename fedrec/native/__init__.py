"""Kernels: small programs in one dialect of C, compiled for the available CPU or GPU, called on tensors."""
