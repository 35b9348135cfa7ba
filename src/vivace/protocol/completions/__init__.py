"""Text completions, for editors: `/v1/completions` as OpenAI has it, `/infill` as llama.cpp has it."""
