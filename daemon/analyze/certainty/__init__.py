"""How sure a share is: the changes that were seen, and the intervals that follow."""
