"""What frames of frameworks mean, from torch to the standard library, and how Kineto writes."""
