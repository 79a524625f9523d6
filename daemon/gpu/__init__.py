"""GPUs through NVML: what they do, and for whom."""
