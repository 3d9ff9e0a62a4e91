"""Engines: each runs the same local rounds; `loop` is the oracle of the others."""
