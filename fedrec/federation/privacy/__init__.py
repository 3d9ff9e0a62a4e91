"""Noise on uploads and gradients, and its privacy guarantees."""
