"""What frames of frameworks mean: of torch, loaders, trainers, servers and the standard library."""
