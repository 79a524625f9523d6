"""The script's own terminal: keys go in by its pseudo-terminal, its output comes out of the run file as a picture."""
