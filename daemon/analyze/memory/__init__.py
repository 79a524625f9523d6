"""Memory: what grows, what jumped, and how long there is room."""
