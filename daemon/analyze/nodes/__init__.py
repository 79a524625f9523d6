"""The nodes of a job, each with a run file of its own: which belong together, and how far their clocks are apart."""
