"""The terminal: one screen with the conversation, the prompt and a status line, drawn with Textual."""
