"""What the agent's tools may do: modes, protected paths and the decision."""
