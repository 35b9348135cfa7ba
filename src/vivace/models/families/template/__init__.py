"""Chat families made from the chat template inside a model's own file."""
