"""Reads integers out of a running Python, from outside.

It writes nothing, stops nothing, and runs no code of ours in it.
"""
