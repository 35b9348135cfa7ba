"""`vivace bench team`: several users of one server at once.

Owns the options and what is printed. Does not measure: `vivace.bench.team` does.
"""

import click


@click.command()
@click.option("--model", help="A name from `vivace models`, or a .gguf file.")
@click.option(
    "--users", default="1,2,4,8,16", show_default=True, help="How many at once, with commas between."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--check", is_flag=True, help="Exit with 1 if any limit is missed.")
def team(model: str | None, users: str, as_json: bool, check: bool) -> int:
    """Measure several users at once, each on a socket of its own: speed of all, and to the first token."""
    import json
    import signal

    from vivace.bench.gpu.users import parse_users
    from vivace.bench.team.run import run_team_bench, table
    from vivace.cli.installation.fetching import fetch_model
    from vivace.config import load_settings
    from vivace.errors import DONE, FAILED

    try:
        counts = parse_users(users)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--users") from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server goes as with Ctrl-C
    settings = load_settings().having(model=model)
    fetch_model(settings)
    report = run_team_bench(settings, counts)
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else table(report))
    return FAILED if check and not all(report["passed"].values()) else DONE
