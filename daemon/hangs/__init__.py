"""Detect that a run has stopped making progress, and find what each process then waits for."""
