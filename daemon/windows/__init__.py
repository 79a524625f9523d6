"""torch.profiler windows of a run, taken and reduced.

They are taken through Kineto (``ondemand``) or injected code (``injection``).

Nothing here imports torch.
"""
