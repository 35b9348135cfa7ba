"""Which of this machine's devices computes, and what llama.cpp needs for it."""
