"""`vivace launch`: its arguments, and the way from them to a client that runs.

Owns the options, the words and the order of steps. Does not own any of the steps.
"""

from typing import TYPE_CHECKING

import click

from vivace.cli.launch.clients import CLIENTS, Client, Prompt
from vivace.cli.options import model_option

if TYPE_CHECKING:
    from vivace.cli.launch.plan import LaunchRequest
    from vivace.config import Settings

KEY = "(made for this launch, and removed at its end)"


@click.command()
@click.argument("client", type=click.Choice(list(CLIENTS)), required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@model_option
@click.option(
    "--prompt",
    "wanted",
    metavar="NAME",
    help="How much Claude Code (full, tools, bare) or aider (diff, whole) tells the model before your first "
    "word. Default: what the model and this machine can read.",
)
@click.option("--print", "is_printed", is_flag=True, help="Show what would be set and run, and do nothing.")
def launch(
    client: str | None, arguments: tuple[str, ...], model: str | None, wanted: str | None, is_printed: bool
) -> int:
    """Run another coding client on this server. Without a CLIENT, list which are installed.

    Arguments after `--` go to the client. Vivace sets it up with variables, flags and a private folder; your
    own settings for it are neither changed nor needed.
    """
    from vivace.cli.installation.fetching import with_model_here
    from vivace.cli.launch.listing import listed, not_installed
    from vivace.config import load_settings
    from vivace.errors import DONE, StartError
    from vivace.programs import find_program

    if client is None:
        for line in listed():
            click.echo(line)
        return DONE
    chosen, settings = CLIENTS[client], load_settings().having(model=model)
    prompt = _prompt_named(chosen, wanted) if wanted else None
    program = find_program(chosen.program)
    if is_printed:
        _print(_launch_request(settings, chosen, program or chosen.program, prompt, arguments))
        return DONE
    if program is None:
        raise StartError(not_installed(chosen))
    return _run(_launch_request(with_model_here(settings), chosen, program, prompt, arguments))


def _prompt_named(client: Client, name: str) -> Prompt:
    for prompt in client.prompts:
        if prompt.name == name:
            return prompt
    known = ", ".join(prompt.name for prompt in client.prompts)
    raise click.UsageError(f"{client.title} has no prompt {name!r}; it has: {known}.")


def _launch_request(
    settings: "Settings", client: Client, program: str, prompt: Prompt | None, given: tuple[str, ...]
) -> "LaunchRequest":
    from vivace.cli.launch.place import choose_prompt, place_of
    from vivace.cli.launch.plan import LaunchRequest

    place = place_of(settings)
    return LaunchRequest(settings, client, program, place, prompt or choose_prompt(client, place), given)


def _print(asked: "LaunchRequest") -> None:
    """Show a launch at the server that runs, or at the port where one would be started."""
    from vivace.cli.launch.belongings import private_folder
    from vivace.cli.launch.plan import planned
    from vivace.client.warm import find_server

    found = find_server(asked.settings)
    port = found[0].port if found else asked.settings.port
    click.echo(f"# {asked.words}")
    for line in planned(asked, port, KEY, private_folder(asked.settings, asked.client.name)).lines():
        click.echo(line)


def _run(asked: "LaunchRequest") -> int:
    """Run the client at the warm server, and return its exit code."""
    from vivace.cli.launch.belongings import own_folder, own_key
    from vivace.cli.launch.plan import planned
    from vivace.cli.launch.running import run_in_foreground
    from vivace.client.warm import ensure_server

    settings, name = asked.settings, asked.client.name
    port = ensure_server(settings, _note).port
    _note(asked.words)
    if asked.prompt.tokens > asked.place.window_tokens:
        _note(f"That does not fit: {settings.model} holds {asked.place.window_tokens:,} tokens here.")
    with own_folder(settings, name) as folder, own_key(settings, name) as key:
        plan = planned(asked, port, key, folder)
        for path, text in plan.files.items():
            path.write_text(text, "utf-8")
        return run_in_foreground(plan.command, plan.environment(), lambda: _keep_warm(port, key))


def _keep_warm(port: int, key: str) -> None:
    """Tell the server that it is still used, or it would end while its user thinks."""
    from contextlib import suppress

    from vivace.client import http

    with suppress(OSError):  # it was stopped: the client will say so
        http.post(port, "/v1/messages/count_tokens", b"{}", key)  # refused, without a model; it counts as use


def _note(text: str) -> None:
    click.echo(text, err=True)
