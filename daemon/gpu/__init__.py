"""Counters of GPUs through NVML, and the processes that use them."""
