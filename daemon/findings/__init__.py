"""Findings: what slows a run, how sure that is, and what to do about it.

They also say what that can bring at most.
"""
