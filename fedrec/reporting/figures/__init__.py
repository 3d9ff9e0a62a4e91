"""Figures: one file per layout, found by its name; files without a layout are what they share."""
