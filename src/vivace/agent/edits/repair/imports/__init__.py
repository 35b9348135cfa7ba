"""The imports that a new piece of code needs: which are missing, where they come from, where they go."""
