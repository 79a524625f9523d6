"""Steps of a loop from outside: which integer counts them, and how many there were."""
