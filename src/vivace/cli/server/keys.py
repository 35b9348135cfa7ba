"""`vivace keys`: keys for other programs and people, besides the token of this user.

Owns the words on the screen and opens the store, also beside a running server. Does not make or check keys:
`server.store.keys` does. The secret goes to stdout, once and alone, so that a script can take it.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from pathlib import Path

    from vivace.config import Settings
    from vivace.server.store.base import Key, Store

T = TypeVar("T")
AMOUNT = click.IntRange(0, 10**12)


@click.group(invoke_without_command=True)
@click.pass_context
def keys(context: click.Context) -> None:
    """Add, list and remove keys for other programs and people."""
    if context.invoked_subcommand is None:
        _list()


@keys.command()
@click.argument("name")
@click.option("--tenant", help="Share stored responses with all keys of this tenant. Without it: with none.")
@click.option("--requests-per-minute", type=AMOUNT, metavar="N", help="0: no limit. Default: your settings'.")
@click.option("--tokens-per-minute", type=AMOUNT, metavar="N", help="Read and written, together.")
@click.option(
    "--background-requests-per-minute", type=AMOUNT, metavar="N", help="Background turns count apart."
)
@click.option("--background-tokens-per-minute", type=AMOUNT, metavar="N")
def add(name: str, tenant: str | None, **limits: int | None) -> None:
    """Make a key. It is shown once."""
    from vivace.config import load_settings
    from vivace.server.transport.access.keys import add_key

    settings = load_settings()
    given = {limit: amount for limit, amount in limits.items() if amount is not None}
    key, secret = with_store(
        settings.database, lambda store: add_key(store, name, tenant=tenant, limits=given)
    )
    click.echo(secret)
    for line in (
        f"This is key {key.id}, {key.name}, of tenant {key.tenant}; limits a minute: {_limits(key)}.",
        "It is shown this once: only its hash is kept. Use it where a program asks for an OpenAI key:",
        f"  OPENAI_BASE_URL={_url(settings)}",
        "  OPENAI_API_KEY=the key above",
        f"Take it back with `vivace keys rm {key.id}`.",
    ):
        click.echo(line, err=True)


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_keys(as_json: bool) -> None:
    """List the keys: whose they are, when they were used, and their limits."""
    if as_json:
        import msgspec

        rows = [msgspec.to_builtins(key) | {"limits": _own_limits(key)} for key in _known()]
        click.echo(msgspec.json.encode(rows))
    else:
        _list()


@keys.command()
@click.argument("id_or_name")
def rm(id_or_name: str) -> None:
    """Remove a key. It stops working within seconds; what its tenant has stored stays."""
    from vivace.config import load_settings
    from vivace.server.transport.access.keys import remove_key

    key = with_store(load_settings().database, lambda store: remove_key(store, id_or_name))
    click.echo(f"Removed key {key.id}, {key.name}. It stops working within seconds.")


def _list() -> None:
    from vivace.cli.show.screen import clean

    known = _known()
    if not known:
        click.echo("There are no keys but the token of this user. Add one with `vivace keys add NAME`.")
        return
    rows = [("ID", "NAME", "TENANT", "CREATED", "LAST USED", "LIMITS A MINUTE")]
    for key in known:
        times = _time(key.created_at), _time(key.last_used_at)
        rows.append((key.id, clean(key.name), clean(key.tenant), *times, _limits(key)))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        columns = [f"{text:<{width}}" for text, width in zip(row, widths, strict=False)]
        click.echo("  ".join([*columns, row[5]]))


def _known() -> "list[Key]":
    """Return the keys. Make no database just for looking."""
    from vivace.config import load_settings

    path = load_settings().database
    return with_store(path, lambda store: store.keys()) if path.exists() else []


def with_store(path: "Path", work: "Callable[[Store], Awaitable[T]]") -> T:
    """Do `work` with the store, whether or not a server runs."""
    import asyncio

    from vivace.server.store.sqlite import SqliteStore

    async def run() -> T:
        async with SqliteStore(path) as store:
            return await work(store)

    return asyncio.run(run())


def _url(settings: "Settings") -> str:
    """Return the URL of the server that runs or will run."""
    from vivace.client.warm import find_server
    from vivace.protocol.rundir import HOST

    found = find_server(settings)
    return f"http://{HOST}:{found[0].port if found else settings.port}/v1"


def _own_limits(key: "Key") -> dict[str, int] | None:
    """Return the limits, or None if they cannot be read."""
    import msgspec

    try:
        return msgspec.json.decode(key.limits, type=dict[str, int])
    except (msgspec.DecodeError, UnicodeError):
        return None


def _limits(key: "Key") -> str:
    own = _own_limits(key)
    if not own:
        return "as in the settings" if own is not None else "not readable: remove this key"
    amounts = {name: f"{amount:,}" if amount else "any" for name, amount in own.items()}
    names = {name: name.removesuffix("_per_minute").replace("_", " ") for name in own}
    return ", ".join(f"{amounts[name]} {names[name]}" for name in own)


def _time(at: int | None) -> str:
    from datetime import datetime

    return "never" if at is None else datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M")
