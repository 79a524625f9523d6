"""The command line: one file a command, and nothing imported that the named command does not need.

A command's module has a click command called ``command``; ``main`` knows where each one lies and loads it when it is
named. stdout is data, stderr is narration. A command returns its exit code, or None for 0.
"""
