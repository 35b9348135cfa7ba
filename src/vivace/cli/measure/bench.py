"""`vivace bench engine`: the engine beside plain llama.cpp on this machine. `vivace bench gpu`: on its GPU.

Owns the options and what is printed. Does not measure: `vivace.bench` does.
"""

from pathlib import Path
from typing import Any

import click

from vivace.cli.measure.bench_completions import completions
from vivace.cli.measure.bench_team import team
from vivace.cli.measure.bench_tempos import tempos
from vivace.cli.measure.bench_wire import wire

DEFAULT_PLOT = Path("vivace-bench-engine.png")


@click.group()
def bench() -> None:
    """Measure on this machine what we claim."""


@bench.command()
@click.option("--model", help="A name from `vivace models`, or a .gguf file.")
@click.option("--quick", is_flag=True, help="Fewer rows, same figures: under five minutes on two cores.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--check", is_flag=True, help="Exit with 1 if any limit is missed.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder with commit_edits.jsonl: the edits to measure with.",
)
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), help=f"Where the plot goes.  [{DEFAULT_PLOT}]"
)
def engine(
    model: str | None,
    quick: bool,
    as_json: bool,
    check: bool,
    data: Path | None,
    plot: Path | None,
) -> int:
    """Compare the engine with plain llama.cpp: same model file, same threads, same prompts."""
    import signal

    from vivace.bench.engine.effort import FULL, QUICK
    from vivace.bench.engine.run import run_engine_bench
    from vivace.cli.installation.fetching import fetch_model
    from vivace.config import load_settings
    from vivace.errors import DONE, FAILED
    from vivace.kept_results import keep_result

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # children and files go as with Ctrl-C
    settings = load_settings().having(model=model)
    fetch_model(settings)
    report = run_engine_bench(settings, QUICK if quick else FULL, data)
    keep_result(settings, "bench engine", report)
    _print(report, as_json=as_json, plot=plot)
    return FAILED if check and not all(report["passed"].values()) else DONE


@bench.command()
@click.option("--model", help="A name from `vivace models`, or a .gguf file.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option(
    "--bits", type=click.Choice(["4", "8", "16"]), multiple=True, help="Weights on the GPU.  [8, 16]"
)
@click.option("--kv-bits", type=click.Choice(["16", "8"]), default="16", help="KV on the GPU.  [16]")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder with commit_edits.jsonl: the edits to measure with.",
)
@click.option("--no-peers", is_flag=True, help="Leave out vLLM, transformers and llama.cpp.")
@click.option("--users", help="Only this: speed of so many users together, such as 1,2,4,8,16.")
@click.option("--shape", help="In place of a file: random weights of such a model, as qwen2.5-coder-7b.")
def gpu(
    model: str | None,
    as_json: bool,
    bits: tuple[str, ...],
    kv_bits: str,
    data: Path | None,
    no_peers: bool,
    users: str | None,
    shape: str | None,
) -> int:
    """Measure the speed on an NVIDIA GPU: one user's, beside what else is installed, or several users'."""
    import json

    wished = [int(each) for each in bits]
    if users:
        return _gpu_users(users, model, shape, wished or [8], has_peers=not no_peers, as_json=as_json)
    if shape:
        return _gpu_shape(shape, wished or [4, 8], has_peers=not no_peers, as_json=as_json)

    from vivace.bench.gpu.report import table
    from vivace.bench.gpu.run import run_gpu_bench
    from vivace.config import load_settings
    from vivace.errors import DONE
    from vivace.kept_results import keep_result
    from vivace.models.store import model_path

    settings = load_settings().having(model=model)
    report = run_gpu_bench(
        model_path(settings, settings.model),
        gpu_folder=settings.cache_dir / "gpu",
        data=data,
        bits=wished or [8, 16],
        kv_bits=int(kv_bits),
        has_peers=not no_peers,
    )
    keep_result(settings, "bench gpu", report)
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else table(report))
    return DONE


def _gpu_shape(name: str, bits: list[int], *, has_peers: bool, as_json: bool) -> int:
    import json

    from vivace.bench.gpu.shapes import run_shape_bench, shape_table
    from vivace.config import load_settings
    from vivace.errors import DONE
    from vivace.kept_results import keep_result

    _check_shape(name)
    report = run_shape_bench(name, bits, has_peers=has_peers, say=lambda what: click.echo(what, err=True))
    keep_result(load_settings(), "bench gpu", report)
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else shape_table(report))
    return DONE


def _check_shape(name: str) -> None:
    from vivace.bench.gpu.shapes import known_names

    known = known_names()
    if name not in known:
        raise click.BadParameter(f"{name} is none of {', '.join(known)}.", param_hint="--shape")


def _gpu_users(
    users: str, model: str | None, shape: str | None, bits: list[int], *, has_peers: bool, as_json: bool
) -> int:
    import json

    from vivace.bench.gpu.users import DEFAULT_SHAPE, parse_users, run_users_bench, users_table
    from vivace.config import load_settings
    from vivace.errors import DONE
    from vivace.models.store import model_path

    try:
        counts = parse_users(users)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--users") from None
    if shape:
        _check_shape(shape)
    settings = load_settings().having(model=model)
    report = run_users_bench(
        counts,
        bits,
        checkpoint=None if shape else model_path(settings, settings.model),
        gpu_folder=settings.cache_dir / "gpu",
        shape=shape or DEFAULT_SHAPE,
        has_peers=has_peers,
        say=lambda what: click.echo(what, err=True),
    )
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else users_table(report))
    return DONE


def _print(report: dict[str, Any], *, as_json: bool, plot: Path | None) -> None:
    import json

    from vivace.bench.engine.plot import draw
    from vivace.bench.engine.report import table

    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else table(report))
    if plot or not as_json:
        file = (plot or DEFAULT_PLOT).absolute()
        draw(report, file)
        click.echo(f"Plot: {file}", err=as_json)


bench.add_command(wire)
bench.add_command(team)
bench.add_command(tempos)
bench.add_command(completions)
