"""Launches a script as if profd were not there: its terminal, its signals, its exit status."""
