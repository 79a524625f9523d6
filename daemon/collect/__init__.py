"""Reading a process from outside: its stacks, its steps, its GPUs and its host, each in a room of its own.

What all that costs, and the governor that bounds it, stand beside the rooms. Nothing here knows of runs or sessions.
"""
