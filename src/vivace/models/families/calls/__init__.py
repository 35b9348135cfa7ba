"""Tool calls in text: how each form is told to a model, held by a grammar, and read as it comes."""
