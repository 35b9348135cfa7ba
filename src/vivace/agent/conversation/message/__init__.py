"""What a message of the user's is about, and what the model reads of it."""
