"""What `vivace bench wire` measures: one module for each subject."""
