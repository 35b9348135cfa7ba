"""`vivace extras`: what can be added to this installation.

Owns the words on the screen; `vivace.extras` knows the extras and installs them.
"""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from vivace.engine.devices.backend_files import BackendName
    from vivace.extras import Extra


@click.group(invoke_without_command=True)
@click.pass_context
def extras(context: click.Context) -> None:
    """Add what is not installed by default, such as the engine for NVIDIA GPUs."""
    if context.invoked_subcommand is None:
        _list()


@extras.command("list")
def list_extras() -> None:
    """List the extras, and whether they are here."""
    _list()


@extras.command()
@click.argument("name")
@click.option("--explain", "is_asking", is_flag=True, help="Say what it would do here, and do nothing.")
@click.option(
    "--llama-cpp", "wants_llama", is_flag=True, help="cuda: build llama.cpp even where our own kernels run."
)
def add(name: str, is_asking: bool, wants_llama: bool) -> None:
    """Install one, or build it for this machine. A running server uses it after `vivace stop`."""
    from vivace.engine.devices.backend_files import NAMES
    from vivace.extras import find_extra, install

    extra = find_extra(name)
    for backend in NAMES:
        if backend == extra.name:
            _add_gpu(backend, extra, is_asking=is_asking, wants_llama=wants_llama)
            return
    if not extra.missing:
        click.echo(f"The extra {extra.name} is here already.")
        return
    if is_asking:
        click.echo(f"{extra.what}: pip would install it.")
        return
    install(extra)
    click.echo(f"The extra {extra.name} is here. A running server uses it after `vivace stop`.")


def _add_gpu(name: "BackendName", extra: "Extra", *, is_asking: bool, wants_llama: bool) -> None:
    """Say which way it will be on this machine, then go it."""
    from vivace.config import load_settings
    from vivace.engine.devices.backend_files import find_built
    from vivace.extras import build_gpu, install, plan_gpu

    cache_dir = load_settings().cache_dir
    addition = plan_gpu(name, cache_dir, wants_llama=wants_llama)
    click.echo(addition.words)
    if is_asking:
        return
    built = find_built(cache_dir).get(name)
    if addition.way == "packages" and not extra.missing:
        click.echo("They are here already.")
    elif addition.way == "packages":
        install(extra)
        click.echo("They are here. A running server uses them after `vivace stop`.")
    elif built and set(addition.capabilities) <= set(built.capabilities):
        click.echo(f"It is here already: {built.library}")
    else:
        library = build_gpu(name, addition, cache_dir, _BuildProgress().tell)
        click.echo(f"It is here: {library}. A running server uses it after `vivace stop`.")


class _BuildProgress:
    """Shows how far a build is: one moving line on a terminal, a line for each tenth elsewhere."""

    def __init__(self) -> None:
        self._title, self._tenths = "", 0

    def tell(self, title: str, fraction: float | None) -> None:
        import sys

        is_terminal = sys.stderr.isatty()
        if title != self._title:
            self._title, self._tenths = title, 0
            click.echo(f"{title} …", err=True)
        if fraction is None:
            return
        if is_terminal:
            click.echo(f"\r\x1b[K  {fraction:4.0%}", nl=fraction >= 1, err=True)
        elif int(10 * fraction) > self._tenths:
            self._tenths = int(10 * fraction)
            click.echo(f"  {title}: {10 * self._tenths}%", err=True)


def _list() -> None:
    from vivace.config import load_settings
    from vivace.extras import EXTRAS

    cache_dir = load_settings().cache_dir
    for extra in EXTRAS:
        state = "here" if extra.is_here(cache_dir) else f"add it with `vivace extras add {extra.name}`"
        click.echo(f"{extra.name:<6} {extra.what}: {state}")
