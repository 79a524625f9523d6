"""Launch a script as if profd were not there: with its terminal, its signals, its exit status."""
