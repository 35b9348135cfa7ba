"""Plain requests on real projects, and whole repository tasks, through the edit loop without a named file."""
