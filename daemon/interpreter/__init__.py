"""Reads integers out of a running Python, from outside: no write, no stop, no code of ours in it."""
