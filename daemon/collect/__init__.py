"""Reading a process from outside: stacks through py-spy, counters through psutil and /proc, and what all that costs.

pyspy (one recording) -> chrometrace (decoded) -> tearing (checked) -> assembly (a record of the run) <- chain
counter (one reading of integers) -> sightings -> growth -> loops (the counter) -> odometer (its steps) <- steps
"""
