"""Extensions of editors: building and installing them. Their sources are in `editors/` of the repository."""
