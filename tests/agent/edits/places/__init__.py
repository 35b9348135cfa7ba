"""The place of an edit: clues of the text, the index, the ranking."""
