"""`python -m vivace`."""

from vivace.cli.main import run

run()
