"""`vivace ask`: its arguments.

Owns the options. Does not own what they start (`editing`) nor the answer (`agent.ask`).
"""

from pathlib import Path

import click

from vivace.cli.options import model_option, verbose_option


@click.command()
@click.argument("question")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Events, one a line.")
@model_option
@verbose_option
def ask(question: str, paths: tuple[Path, ...], as_json: bool, model: str | None, verbose: bool) -> int:
    """Ask about code."""
    from vivace.cli.edits.editing import answer_question, choose_presenter
    from vivace.config import load_settings

    presenter = choose_presenter(as_json=as_json, verbose=verbose)
    return answer_question(load_settings().having(model=model), presenter, question, paths)
