"""What travels between the holder of a conversation and a face that is attached: messages and their bytes."""
