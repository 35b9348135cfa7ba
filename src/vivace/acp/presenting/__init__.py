"""What an ACP client is shown of a conversation, and asked: tool calls, diffs, questions, their rhythm."""
