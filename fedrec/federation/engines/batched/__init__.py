"""The engine that trains many clients at once in plain torch."""
