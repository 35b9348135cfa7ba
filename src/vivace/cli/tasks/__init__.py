"""Give tasks to a model: `vivace run`, `tasks`, `workflow`, and `trust` in what a project would run."""
