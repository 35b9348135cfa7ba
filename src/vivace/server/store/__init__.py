"""Where responses, their logs and keys are kept (`base` is the seam)."""
