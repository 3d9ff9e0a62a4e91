"""Centralised methods: one model trained on everybody's data."""
