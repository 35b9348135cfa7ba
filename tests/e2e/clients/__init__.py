"""Programs of others on our server, each as its users run it: installed, configured as our guides say."""
