"""Writing files so that nothing is lost, and taking edits back."""
