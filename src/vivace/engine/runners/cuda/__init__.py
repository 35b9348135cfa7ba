"""One NVIDIA GPU, one user, lowest latency: our own kernels in one CUDA graph a token.

In data-path order: `shape` (the model), `layout` (its weights in memory), `weights` (where they come from),
`plan` (how work is divided), `launches` (the launches of one pass), `driver` (compiling and launching),
`graphs` (passes captured once), `prefill`, `kv`, `stream`, and `runner`, which implements `runners.base`.
"""
