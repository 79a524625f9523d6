"""Sums by the minute, which make a run of a day as quick to read as one of minutes.

``stacks`` and ``points`` keep them up to date while a run is written, ``stored`` reads them, ``split`` says which
part of a range they have. What a GPU that is idle
and a thread that is on the CPU are stands in ``held``, for those who sum up and those who read one by one alike.
"""
