"""The face for editors that speak the Agent Client Protocol: `vivace acp`."""
