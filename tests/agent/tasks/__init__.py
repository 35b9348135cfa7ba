"""Background tasks: log, workplace, resuming, taking over, kills."""
