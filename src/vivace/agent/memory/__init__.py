"""What is remembered from one conversation to the next: instruction files, notes, past conversations."""
