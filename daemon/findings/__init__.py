"""Findings: what slows a run, how sure that is, what to do about it and what that can bring at most."""
