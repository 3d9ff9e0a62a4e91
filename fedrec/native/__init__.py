"""Kernels: small programs in one dialect of C, compiled for the CPU or GPU at hand, called on tensors."""
