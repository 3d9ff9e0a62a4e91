"""Observers of a run: records for figures and the audit, beyond the final state."""
