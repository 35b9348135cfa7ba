"""The Messages API, in the shapes of Anthropic, on top of the Responses API."""
