"""Noise on uploads and gradients, and what it guarantees."""
