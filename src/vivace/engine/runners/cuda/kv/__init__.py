"""Where keys and values lie on the device."""
