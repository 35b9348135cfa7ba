"""What `vivace bench engine` measures: one module for each subject, one function for each section."""
