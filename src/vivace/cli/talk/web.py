"""`vivace web`: its arguments.

Owns the options. Does not own how the browser gets in (`browsing`).
"""

import click


@click.command()
@click.argument("folder", required=False, type=click.Path())
@click.option("--no-open", is_flag=True, help="Print the address, open no browser.")
def web(folder: str | None, no_open: bool) -> None:
    """Open the app in your browser, in FOLDER or here."""
    from pathlib import Path

    from vivace.cli.talk.browsing import open_app
    from vivace.config import load_settings

    open_app(load_settings(), Path(folder) if folder else Path.cwd(), opens_browser=not no_open)
