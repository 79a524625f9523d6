"""Record the stacks of one process from outside: run py-spy, chain, decode and check recordings."""
