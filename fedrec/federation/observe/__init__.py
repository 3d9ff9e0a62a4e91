"""Observers of a run: what figures and the audit record besides the final state."""
