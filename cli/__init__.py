"""The command line: nothing is imported that the named command does not need.

``main`` knows in which module each command lies, and loads it when it is named. stdout is data,
stderr is narration. A command returns its exit code, or None for 0.
"""
