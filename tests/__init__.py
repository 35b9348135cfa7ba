"""The tests. They mirror src/vivace; `e2e` holds what drives the whole program, `setup` the set-up's own."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
