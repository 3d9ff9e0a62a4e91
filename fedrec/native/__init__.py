"""Kernels: small programs in one dialect of C, compiled for the CPU or GPU and called on tensors."""
