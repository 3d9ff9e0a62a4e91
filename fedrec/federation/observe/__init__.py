"""Observers of a run: records for figures and the audit, in addition to the final state."""
