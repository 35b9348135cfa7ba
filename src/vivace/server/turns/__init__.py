"""Every turn of every route: limits, queue, start, background, end."""
