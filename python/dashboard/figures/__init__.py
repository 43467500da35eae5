"""Plotly figures from results that are ready to be drawn."""
