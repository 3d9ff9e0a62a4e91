"""Tables of the audit: one file per table, found by its name."""
