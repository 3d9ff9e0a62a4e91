"""Kernels: small programs in one dialect of C, compiled for this CPU or GPU, called on tensors."""
