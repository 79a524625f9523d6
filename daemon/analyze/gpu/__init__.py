"""GPUs beside the stacks: how busy, for whom, and what ran while they were idle."""
