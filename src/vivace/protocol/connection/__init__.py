"""The machine of one WebSocket: messages and outcomes in, actions out."""
