"""torch.profiler windows of a run, taken through Kineto (``ondemand``) or injected code (``injection``), and reduced.

Nothing here imports torch.
"""
