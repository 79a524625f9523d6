"""What tests build: runs, traces, processes, clocks, terminals.

Each module is named by what it makes.
"""
