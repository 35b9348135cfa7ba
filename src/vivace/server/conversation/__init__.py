"""What is known of conversations: stored responses, token logs, prompts."""
