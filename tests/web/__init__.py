"""The face host and the browser app."""
