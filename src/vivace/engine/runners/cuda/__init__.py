"""One NVIDIA GPU, one user, lowest latency: our own kernels in one CUDA graph a token.

The way of the data: `shape` (the model), `layout` (how its weights lie in memory), `weights` (where they come
from), `plan` (how the work is cut), `chain` (the launches of one pass), `driver` (compiling and launching),
`graphs` (passes captured once), `prefill`, `kv`, `stream`, and `runner`, which puts them behind the seam.
"""
