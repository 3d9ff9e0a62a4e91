"""The chapters of the page."""
