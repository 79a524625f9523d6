"""A run as programs see it: what the commands say, as values; ``profd`` offers it by short names.

The commands select, open and sum up runs by the same functions.
"""
