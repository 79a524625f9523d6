"""Native stacks of threads that wait, read without stopping them."""
