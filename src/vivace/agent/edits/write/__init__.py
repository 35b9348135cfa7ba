"""What the model is asked, and its answer as it comes."""
