"""The engine processes of a model: started, watched, spoken to, and which of them a turn goes to."""
