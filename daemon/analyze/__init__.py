"""What a run means: pure functions over the reader.

They lead from samples to call trees, phases and a summary.

selection -> profile -> functions, calltree, phases -> summary
"""
