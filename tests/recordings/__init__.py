"""Recordings of real programs: which ones, how they are made, and what is expected of them."""
