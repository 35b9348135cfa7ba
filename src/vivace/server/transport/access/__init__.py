"""Who may come in: the owner's token, keys of others, tickets of browsers."""
