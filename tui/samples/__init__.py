"""What was seen of the threads, added up over any range of time: stacks, functions, lines, phases. Knows no screen."""
