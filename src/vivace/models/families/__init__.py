"""The families of models that Vivace can talk to, one module each (`base` is the seam)."""
