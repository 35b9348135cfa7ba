"""The browser app in a real Chromium, and what it is made from."""
