"""Trainings with one known bottleneck each, and with ``--fixed`` without it."""
