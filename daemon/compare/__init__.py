"""Two runs beside each other: what changed, and what is only noise."""
