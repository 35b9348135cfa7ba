"""What a task has changed, and taking it over into the folder of its user."""
