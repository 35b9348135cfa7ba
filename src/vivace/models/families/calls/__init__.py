"""Tool calls in text: how they are described to a model, enforced by a grammar, and parsed as they stream."""
