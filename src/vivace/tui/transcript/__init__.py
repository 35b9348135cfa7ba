"""What was said and done, as blocks of lines, and the widget that shows the lines in view."""
