"""`vivace doctor`: what this machine is to the engine, and what to do about whatever is wrong.

Owns the checks and their remedies. The speed is measured through the running server, as a user would feel
it. Does not mend anything; `--tune` is another matter, and `tune`'s.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from vivace.config import Settings

LOW_DISK_BYTES = 2_000_000_000
MEASURED_TOKENS = 48
_PROMPT_WORDS = 120  # a prompt of about as many tokens: enough to time the prefill


@dataclass(frozen=True)
class Finding:
    name: str
    value: str
    remedy: str = ""  # empty: all is well


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--quick", is_flag=True, help="Do not start a server or measure speed.")
@click.option(
    "--tune", "tunes", is_flag=True, help="Measure which weights, threads and chunks suit this CPU."
)
@click.option("--all", "with_costly", is_flag=True, help="With --tune: show formats that cost quality too.")
def doctor(as_json: bool, quick: bool, tunes: bool, with_costly: bool) -> int:
    """Check this machine: CPU, memory, model, folders, server, speed."""
    import msgspec

    from vivace.cli.show.screen import Screen
    from vivace.config import load_settings
    from vivace.errors import DONE, FAILED, UsageError

    settings = load_settings()
    if tunes:
        from vivace.cli.installation.tune import tune_now

        tune_now(settings, with_costly=with_costly, as_json=as_json)
        return DONE
    if with_costly:
        raise UsageError("--all goes with --tune.", "Run `vivace doctor --tune --all`.")
    findings = [
        *_machine(),
        _device(settings),
        _installation(),
        _sandbox(),
        _checkers(),
        *_places(settings),
        *_model(settings),
        *_tiers(settings),
        *_server(settings),
    ]
    if not quick and not settings.is_elsewhere(settings.model):
        findings += _speed(settings)
    problems = [finding for finding in findings if finding.remedy]
    if as_json:
        click.echo(msgspec.json.encode(findings).decode())
    else:
        screen = Screen()
        for finding in findings:
            screen.say(f"{'!' if finding.remedy else '✓'} {finding.name:<9} {finding.value}")
            if finding.remedy:
                screen.say(f"            → {finding.remedy}")
        screen.say("No problems." if not problems else f"{len(problems)} to look at.")
    return FAILED if problems else DONE


def _machine() -> list[Finding]:
    import platform

    from vivace.engine.tuning.cpu import cpu_features, memory_bytes

    features = cpu_features()
    slow = platform.machine() in ("x86_64", "AMD64") and "avx2" not in features
    cpu = Finding(
        "cpu",
        f"{platform.system()} {platform.machine()}: {' '.join(features) or 'no special features'}",
        "No AVX2: expect a few tokens a second at most." if slow else "",
    )
    total, available = memory_bytes()
    needed = 3_000_000_000
    memory = Finding(
        "memory",
        f"{available / 1e9:.1f} of {total / 1e9:.1f} GB available",
        "Less than 3 GB: close something, or use --model smollm2-135m." if available < needed else "",
    )
    return [cpu, memory]


def _device(settings: "Settings") -> Finding:
    """Which runner computes on which device, and why not a better one. Only an unmet wish is a problem."""
    from vivace.engine.devices.machine import Machine, detect_machine
    from vivace.engine.devices.ranking import rank_runners
    from vivace.engine.wire.device import parse_device
    from vivace.errors import StartError

    wish = parse_device(settings.device)
    machine = Machine() if wish.kind == "cpu" else detect_machine(settings.cache_dir)
    try:
        ranking = rank_runners(machine, wish)
    except StartError as error:
        return Finding("device", f'"{settings.device}" is set. {error.message}', error.hint)
    gpus = ", ".join(f"cuda:{at} {gpu.gpu}" for at, gpu in enumerate(machine.nvidia) if gpu.gpu)
    chosen = f"{ranking.choices[0]}{f' (of {gpus})' if gpus else ''}"
    why = "from your settings" if wish.kind != "auto" else ranking.why_no_gpu
    return Finding("device", f"{chosen}; {why}" if why else chosen)


def _installation() -> Finding:
    from vivace.installation import find_installation

    return Finding("installed", str(find_installation()))


def _sandbox() -> Finding:
    """Whether commands of models and tests of edits can be walled in. Only Linux can be helped."""
    import asyncio
    import sys

    from vivace.agent.sandbox.here import sandbox_problem, why_none

    lost = "tests of edits do not run, and commands of tasks ask first"
    if sys.platform != "linux":
        return Finding("sandbox", f"none: it is made on Linux only; {lost}")
    problem = asyncio.run(sandbox_problem())
    if problem is None:
        return Finding("sandbox", "bubblewrap")
    return Finding("sandbox", f"none; {lost}. {why_none(problem)}", problem.hint)


def _checkers() -> Finding:
    """Which checkers look at edits beside our own."""
    from vivace.agent.edits.check.faults.tools import NAMES, find_checker

    here = [name for name in NAMES if find_checker(name)]
    more = "" if len(here) == len(NAMES) else "; ruff and ty look, too, after `vivace extras add checks`"
    return Finding("checkers", ", ".join(["our own", *here]) + more)


def _places(settings: "Settings") -> list[Finding]:
    import os
    import shutil

    found = []
    for name, folder in (("cache", settings.cache_dir), ("state", settings.state_dir)):
        there = folder
        while not there.exists():
            there = there.parent
        free = shutil.disk_usage(there).free
        remedy = ""
        if not os.access(there, os.W_OK):
            remedy = f"{there} is not writable: mend its permissions, or set VIVACE_{name.upper()}_DIR."
        elif name == "cache" and free < LOW_DISK_BYTES:
            remedy = "Less than 2 GB free: `vivace models rm NAME`, or set VIVACE_CACHE_DIR to another disk."
        found.append(Finding(name, f"{folder} ({free / 1e9:.0f} GB free)", remedy))
    return found


def _model(settings: "Settings") -> list[Finding]:
    from vivace.models.store import is_present, model_path, shards_of
    from vivace.models.tokenizer import SCRIPTED

    if settings.is_elsewhere(settings.model) or settings.model.startswith(SCRIPTED):
        return [Finding("model", _placed(settings, settings.model))]
    if is_present(settings, settings.model):
        path = model_path(settings, settings.model)
        files = shards_of(path) if path.is_file() else list(path.glob("*.safetensors"))
        size = f"{sum(file.stat().st_size for file in files) / 1e9:.2f} GB"
        here = Finding("model", f"{settings.model} ({size}) at {path}")
        return [here, *_tuning(settings, path)] if path.is_file() else [here]
    remedy = f"Pull it: vivace models pull {settings.model}"
    return [Finding("model", f"{settings.model} is not here", remedy), Finding("threads", _threads(settings))]


def _tiers(settings: "Settings") -> list[Finding]:
    """Return which model serves which tier, if the settings say so."""
    if not settings.tiers:
        return []
    from vivace.models.store import is_present
    from vivace.models.tokenizer import SCRIPTED

    names = {"realtime": settings.model, "background": settings.model_of("background")}
    missing = [
        name
        for name in names.values()
        if not (settings.is_elsewhere(name) or name.startswith(SCRIPTED) or is_present(settings, name))
    ]
    value = ", ".join(f"{tier} {_placed(settings, name)}" for tier, name in names.items())
    return [Finding("tiers", value, f"Pull it: vivace models pull {missing[0]}" if missing else "")]


def _placed(settings: "Settings", model: str) -> str:
    """Return a model's name, with the address if an upstream has it."""
    if not settings.is_elsewhere(model):
        return model
    from vivace.server.backends.upstream.settings import read_upstreams

    named = model.partition("/")[0]
    return next(
        f"{model} at {each.host}" for each in read_upstreams(settings.upstreams) if each.name == named
    )


def _tuning(settings: "Settings", path: "Path") -> list[Finding]:
    """Which weights and threads are used, and whether that was measured. Not measured is no problem."""
    from vivace.engine.tuning.profile import read, tuned, weights_for

    found, decided = tuned(settings, path), read(settings, path)
    if found:
        value = f"measured {found.when[:10]}: {found.why}"
    elif decided and decided.state == "skipped":
        value = f"as downloaded, not measured ({decided.why}) `vivace doctor --tune` does it"
    elif settings.tune == "never":
        value = "as downloaded (from your settings)"
    else:
        value = "as downloaded; measured when the server is idle, or now with `vivace doctor --tune`"
    threads = weights_for(settings, path).threads
    return [Finding("weights", value), Finding("threads", _threads(settings, threads))]


def _threads(settings: "Settings", measured: int = 0) -> str:
    from vivace.engine.tuning.cpu import choose_threads

    if settings.threads:
        return f"{settings.threads} (from your settings)"
    return f"{measured}, measured" if measured else f"{choose_threads()}, one a fast physical core"


def _server(settings: "Settings") -> list[Finding]:
    from vivace.client.warm import read_status
    from vivace.protocol.rundir import log_file

    found = read_status(settings)
    if found is None:
        return [Finding("server", "not running; it starts when it is needed")]
    engine = found.engine
    remedy = "" if engine.is_ready or engine.loading else f"See {log_file(settings)}, then `vivace stop`."
    state = f"pid {found.pid}, port {found.port}, {engine.model} {engine.state}"
    return [Finding("server", state, remedy)]


def _speed(settings: "Settings") -> list[Finding]:
    """Prefill and decode of a fresh prompt through the server."""
    import time

    from vivace.agent.model import Model
    from vivace.agent.prompting import user
    from vivace.cli.connection import with_model
    from vivace.cli.installation.fetching import with_model_here
    from vivace.errors import VivaceError
    from vivace.protocol.shapes.events import Waterfall

    async def work(model: Model) -> Waterfall:
        fresh = " ".join(f"item{time.time_ns() % 1000 + n}" for n in range(_PROMPT_WORDS // 4))
        async for _ in model.write([user(f"{fresh}\nCount from 1 to 50.")], max_tokens=MEASURED_TOKENS):
            pass
        return model.waterfalls[-1]

    try:
        turn = with_model(with_model_here(settings), work)
    except VivaceError as error:
        return [Finding("speed", error.message, error.hint or "See `vivace status`.")]
    prefill = turn.new_tokens / max(turn.prefill_ms, 0.001) * 1e3
    decode = (turn.output_tokens - 1) / max(turn.decode_ms, 0.001) * 1e3
    value = f"prefill {prefill:.0f} tok/s, decode {decode:.1f} tok/s"
    slow = (
        "Slow: is something else using the CPU? Fewer threads may help (VIVACE_THREADS)."
        if decode < 3
        else ""
    )
    return [Finding("speed", value, slow)]
