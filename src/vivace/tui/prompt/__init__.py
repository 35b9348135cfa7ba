"""Where the user types: editor, completion, history, keys."""
