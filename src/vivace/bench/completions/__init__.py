"""How soon a suggestion is there in an editor, and how often it is the right one."""
