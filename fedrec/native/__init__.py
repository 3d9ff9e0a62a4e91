"""Kernels: small programs in one dialect of C, compiled for the CPU or the GPU at hand, and called on tensors."""
