"""How much memory a model's states may take besides weights and the KV of attention.

Owns the numbers. Imports nothing: the list of models counts with them, too.
"""

STATES_BYTES = 1 << 30  # recurrent states of all sequences; a model with large ones takes more for the fewest
CHECKPOINT_BYTES = 1 << 30  # all checkpoints in host memory
