"""HTTP routes: responses, chat completions, text completions, and what the server tells of itself."""
