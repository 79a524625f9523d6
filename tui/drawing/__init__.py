"""Cells, colors, words and strips: how anything is written and drawn in a terminal. Knows neither runs nor widgets."""
