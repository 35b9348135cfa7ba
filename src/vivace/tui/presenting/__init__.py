"""The conversation's events on the screen: which block shows what, and what the user is asked."""
