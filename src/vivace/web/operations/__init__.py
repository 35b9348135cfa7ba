"""What faces may ask, one module a kind: each request has exactly one function that answers it."""
