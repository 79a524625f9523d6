"""The command line: a command imports only the modules that it needs.

``main`` knows the module of each command, and loads it when the command is named. stdout is data,
stderr is narration. A command returns its exit code, or None for 0.
"""
