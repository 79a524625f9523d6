"""Counters of processes, control groups and the machine, from /proc."""
