"""Stacks of one process from outside: py-spy recordings, chained, decoded, checked."""
