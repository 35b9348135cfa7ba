"""What happens, as values that are stored, sent and drawn unchanged: one struct for each kind of event."""
