"""`vivace bench gpu`: one GPU and one user, through the engine."""
