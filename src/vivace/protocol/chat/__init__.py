"""Chat completions, in the shapes of OpenAI, on top of the Responses API."""
