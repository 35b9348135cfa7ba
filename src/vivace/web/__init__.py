"""The face host: a process beside the server in which conversations run for browsers and editors."""
