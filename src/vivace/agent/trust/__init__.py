"""What a project's configuration may start, once its user has seen it and said yes."""
