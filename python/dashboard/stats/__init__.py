"""Figures reckoned from the rows: pure functions, always from all of them."""
