"""Asks NCCL's RAS service for a job's communicators and finds the rank behind in them."""
