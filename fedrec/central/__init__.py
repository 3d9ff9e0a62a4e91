"""Centralised methods, which train one model on the data of all users."""
