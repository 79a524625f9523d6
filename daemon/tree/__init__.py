"""The processes of a run: which there are, what they are for, how they end, and whether one can be attached to."""
