"""What the model is trained on: real commits and broken functions, in the prompts of the edit loop."""
