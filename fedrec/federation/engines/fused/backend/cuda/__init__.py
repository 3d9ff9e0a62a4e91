"""Statements that only a GPU has: steps that its lanes do together."""
