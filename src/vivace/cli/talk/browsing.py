"""From the terminal into the browser: the warm server, a ticket that works once, and the address with it.

Owns when a browser is opened and when the address is only printed. Does not own what the ticket becomes
(`server.faces.sessions`) nor the app.
"""

import os
import sys
import webbrowser
from pathlib import Path
from urllib.parse import urlencode

import click
import msgspec

from vivace.cli.installation.fetching import with_model_here
from vivace.client import http
from vivace.client.warm import ServerAddress, ensure_server
from vivace.config import Settings
from vivace.errors import FileProblem, ServerGone
from vivace.programs import safe_path
from vivace.protocol.rundir import HOST


def open_app(settings: Settings, folder: Path, *, opens_browser: bool) -> None:
    """Open the app in this folder, or say where it is."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise FileProblem(f"{folder} is no folder.", "Name the folder to work in.")
    address = ensure_server(with_model_here(settings), _note)
    url = entrance(address, folder)
    os.environ["PATH"] = safe_path(folder)  # in which the browser is looked for
    if opens_browser and _has_screen() and webbrowser.open(url):
        click.echo(f"Opened http://{HOST}:{address.port}/ in your browser.")
        return
    click.echo(url)
    _note("The address works once, within five minutes.")
    if "SSH_CONNECTION" in os.environ:
        forward = f"ssh -L {address.port}:{HOST}:{address.port}"
        _note(f"On your own machine, `{forward} THIS-MACHINE`; then open the address there.")


def entrance(address: ServerAddress, folder: Path) -> str:
    """Return an address that lets a browser in, once."""
    try:
        body = b'{"purpose": "browser"}'
        status, answer = http.post(address.port, "/v1/vivace/tickets", body, address.token)
        ticket = msgspec.json.decode(answer)["ticket"] if status == 200 else ""
    except (OSError, msgspec.MsgspecError, KeyError) as error:
        raise ServerGone("The server did not answer.", "See `vivace status`.") from error
    if not ticket:
        raise ServerGone(f"The server answered with status {status}.", "Stop it with `vivace stop`.")
    return f"http://{HOST}:{address.port}/enter?{urlencode({'ticket': ticket, 'folder': str(folder)})}"


def _has_screen() -> bool:
    """Return whether a browser could be seen by whoever typed the command."""
    if "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform == "darwin" or any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
