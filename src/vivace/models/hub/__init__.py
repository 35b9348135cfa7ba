"""Models of the hub that the catalog does not pin: names, files, what is in them, and what was pulled."""
