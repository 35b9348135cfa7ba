"""The commands of a terminal: a room for each kind, options in one module and what runs them in another."""
