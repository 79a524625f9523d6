"""Asks NCCL's RAS service for the communicators of a job, and finds the rank that is behind in them."""
