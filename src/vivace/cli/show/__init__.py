"""What a person or a program sees: lines, colours, JSON."""
