"""Kernels: small programs in one dialect of C, compiled for a CPU or GPU and called on tensors."""
