"""Detects that a run has stopped to make progress, and finds what each process waits for then."""
