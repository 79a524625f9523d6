"""A run outside of the dashboard: as text, as collapsed stacks, as a report.

Reads what ``analyze`` returns.
"""
