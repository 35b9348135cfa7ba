"""One module a subject, one function a section of the report."""
