"""Programs that nobody has read yet, run where they can harm nothing."""
