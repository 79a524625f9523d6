"""Know the processes of a run: which there are, what they are for, and how they end.

It also tells whether a process can be attached to.
"""
