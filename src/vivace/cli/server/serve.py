"""`vivace serve`, `vivace status`, `vivace stop`: the server of this user, seen from the terminal.

Owns the words on the screen. Does not serve (`server.process`) or find servers (`client.warm`).
`main` registers the three functions as commands; whatever is heavy is imported inside them.
"""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from vivace.protocol.shapes.status import EngineStatus, OneEngine, ServerStatus, TuningStatus


@click.command()
@click.option(
    "--port", type=int, help="Listen here. Without it: at the port of the settings, or at a free one."
)
@click.option("--model", help="A name from `vivace models`, a .gguf file, or a folder of safetensors.")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="NAME=URL",
    help="Another OpenAI-compatible server, whose models are then NAME/MODEL here. As often as needed.",
)
@click.option(
    "--idle-minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="End after this time without a request. Without it: never.",
)
@click.option(
    "--ensure",
    "is_ensured",
    is_flag=True,
    help="Start it in the background unless one runs, print where it is as JSON, and return. For editors.",
)
def serve(
    port: int | None,
    model: str | None,
    upstreams: tuple[str, ...],
    idle_minutes: float | None,
    is_ensured: bool,
) -> None:
    """Run the server here, until Ctrl-C."""
    if is_ensured:
        if port is not None or model or upstreams or idle_minutes is not None:
            raise click.UsageError("`--ensure` takes no other option: it uses your settings.")
        _ensure()
        return
    from vivace.config import load_settings
    from vivace.errors import StartError
    from vivace.protocol.rundir import HOST
    from vivace.server.backends.upstream.settings import parse_upstream
    from vivace.server.instance import acquire_instance, bind

    settings = load_settings().having(port=port, model=model)
    for given in map(parse_upstream, upstreams):
        table = settings.upstreams.get(given.name, {}) | {"url": given.url}
        settings = settings.having(upstreams=settings.upstreams | {given.name: table})
    instance = acquire_instance(settings)
    if instance is None:
        raise StartError("A server of yours runs already.", "See `vivace status`; end it with `vivace stop`.")
    listener = bind(settings.port, or_another=port is None)
    from vivace.server.process import run_server
    from vivace.server.watch.logs import start_logging

    def say_where() -> None:
        url = f"http://{HOST}:{listener.getsockname()[1]}/v1"
        click.echo(f"Vivace serves {settings.model} at {url} (Ctrl-C ends it)")
        click.echo(f"The token is in {settings.token_file}")

    start_logging(settings.log_format)
    idle_s = None if idle_minutes is None else idle_minutes * 60
    run_server(settings, instance, listener, on_started=say_where, idle_s=idle_s)


def _ensure() -> None:
    """Make sure of the model and the warm server. Print its address, and where its token is."""
    import msgspec

    from vivace.cli.installation.fetching import with_model_here
    from vivace.client.warm import ensure_server
    from vivace.config import load_settings

    settings = with_model_here(load_settings())
    address = ensure_server(settings, lambda line: click.echo(line, err=True))
    found = {
        "url": address.url,
        "token_file": str(settings.token_file),
        "pid": address.pid,
        "model": settings.model,
    }
    click.echo(msgspec.json.encode(found))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(as_json: bool) -> None:
    """Show whether the server runs, and what it does."""
    import msgspec

    from vivace.client.warm import read_status
    from vivace.config import load_settings
    from vivace.protocol.rundir import log_file

    settings = load_settings()
    found = read_status(settings)
    if as_json:
        known = msgspec.to_builtins(found) if found else {}
        click.echo(msgspec.json.encode({"running": bool(found)} | known))
    elif found is None:
        click.echo("No server runs. One starts by itself when it is needed, or with `vivace serve`.")
    else:
        _show(found, str(settings.token_file), str(log_file(settings)))
    if settings.tiers and not as_json:
        click.echo(f"{'tiers':<7} realtime {settings.model}, background {settings.model_of('background')}")


@click.command()
@click.option("--now", is_flag=True, help="Do not wait for running answers to finish.")
def stop(now: bool) -> None:
    """Stop the server, when running answers have finished (30 s at most)."""
    from contextlib import suppress

    from vivace.client.warm import read_status, stop_server
    from vivace.config import load_settings
    from vivace.errors import ServerGone

    settings, found = load_settings(), None
    with suppress(ServerGone):  # one that does not answer is stopped all the same
        found = None if now else read_status(settings)
    if found and found.answers:
        click.echo("An answer is under way; waiting for it (`vivace stop --now` does not).", err=True)
    pid = stop_server(settings, is_hurried=now)
    click.echo("No server runs." if pid is None else f"Stopped the server (pid {pid}).")


def _show(found: "ServerStatus", token_file: str, log_file: str) -> None:
    engine = found.engine
    place = "on the GPU" if engine.device != "cpu" else f"{engine.threads} threads"
    state = f"ready, {place}" if engine.is_ready else engine.state
    is_alone = len(engine.engines) < 2
    rows = [
        ("server", f"running, pid {found.pid}, port {found.port}, version {found.version}"),
        ("up", f"{found.uptime_s / 60:.0f} min"),
        ("model", f"{engine.model} ({state})"),
        ("loaded", ", ".join(engine.loaded) if len(engine.loaded) > 1 else ""),
        ("device", engine.place if is_alone else ""),
        ("gpu", engine.why_no_gpu),
        *(("engine", _engine(each, "" if is_alone else each.place)) for each in engine.engines),
        ("context", _context(engine) if engine.is_ready else ""),
        ("tuning", _tuning(found.tuning) if found.tuning else ""),
        ("token", token_file),
        ("log", log_file),
    ]
    for name, value in rows:
        if value:
            click.echo(f"{name:<7} {value}")


def _engine(engine: "OneEngine", place: str) -> str:
    if engine.pid is None:
        return f"loading, {engine.loading.amount}" if engine.loading else "not running"
    state = "" if engine.is_ready else "does not answer"
    use = (
        f"{engine.sessions} sessions, {engine.kv_tokens} of {engine.kv_cells} KV tokens, {engine.turns} turns"
    )
    return ", ".join(filter(None, [f"pid {engine.pid}", place, state or use]))


def _tuning(tuning: "TuningStatus") -> str:
    why = f": {tuning.text}" if tuning.text else ""
    match tuning.state:
        case "running":
            return f"measuring how to run the model best, step {tuning.step} of {tuning.steps}"
        case "waiting":
            return f"waiting{why or ': it begins when the server has been idle for a while'}"
        case "off":
            return 'off (tune = "never" in your settings)'
        case "unsuited":
            return f"none{why}"
        case "failed":
            return f"the model is used as downloaded{why}"
    return f"done{why}"


def _context(engine: "EngineStatus") -> str:
    longest, trained = engine.session_tokens, engine.trained_tokens
    text = f"{longest:,} tokens a session; the model was trained for {trained:,}"
    if longest > trained:
        return f"{text}: beyond that it is stretched (YaRN), and its answers get worse"
    tiers = [(engine.parked_memory_bytes, "in memory"), (engine.parked_bytes, "on disk")]
    parked = [f"{size / 2**20:,.0f} MiB {where}" for size, where in tiers if size]
    return f"{text}; parked KV: {', '.join(parked)}" if parked else text
