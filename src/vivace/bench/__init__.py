"""Measurements that ship: `vivace bench engine` shows on the user's own machine what README claims."""
