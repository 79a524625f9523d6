"""A stand-in for the py-spy executable, which plays recordings and fails on command."""
