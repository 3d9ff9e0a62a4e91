"""Figures: one module per layout, loaded by its name; modules without a layout are shared."""
