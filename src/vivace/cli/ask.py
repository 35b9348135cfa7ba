"""`vivace ask`: a question, perhaps about files, answered as it is written.

Owns the screen's side and how files go into the prompt. Does not own the model (`connection`).
"""

import click

from vivace.cli.edit import model_option, verbose_option

MAX_ANSWER_TOKENS = 2048


@click.command()
@click.argument("question")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@model_option
@verbose_option
def ask(question: str, paths: tuple[str, ...], model: str | None, verbose: bool) -> None:
    """Ask about code."""
    import time

    from vivace.agent.model import Model
    from vivace.agent.prompting import read_prompt, user
    from vivace.cli import waterfall
    from vivace.cli.connection import with_model, with_model_here
    from vivace.cli.screen import Screen
    from vivace.cli.spinner import Spinner
    from vivace.config import load_settings
    from vivace.errors import UsageError

    if not question.strip():
        raise UsageError("The question is empty.", 'Ask something: vivace ask "QUESTION" [PATH…].')
    screen = Screen()
    messages = [*read_prompt("ask"), user(_with_files(question, paths))]
    settings = with_model_here(load_settings().having(model=model))
    began, first_token_ms = time.perf_counter(), 0.0

    async def work(model: Model) -> Model:
        nonlocal first_token_ms
        spinner = Spinner(screen)
        spinner.wait_for("Reading")
        try:
            async for delta in model.write(messages, max_tokens=MAX_ANSWER_TOKENS):
                spinner.stop()
                first_token_ms = first_token_ms or (time.perf_counter() - began) * 1e3
                screen.write(delta)
        finally:
            spinner.stop()
        return model

    answered = with_model(settings, work)
    screen.say()
    screen.dim(waterfall.one_line(answered.name, answered.waterfalls, first_token_ms))
    if verbose:
        turns = [("answer", turn) for turn in answered.waterfalls]
        for row in waterfall.table(turns, first_token_ms, apply_ms=None):
            screen.dim(row)


def _with_files(question: str, paths: tuple[str, ...]) -> str:
    """The files first, then the question: the next question about them finds them in the KV."""
    from pathlib import Path

    from vivace.agent.edits.apply.source import read_source
    from vivace.agent.edits.find.languages import fence_tag_for
    from vivace.agent.edits.write.answer import fence_for

    parts = []
    for path in map(Path, paths):
        text = read_source(path).text
        fence = fence_for(text)
        parts.append(f"{path}\n{fence}{fence_tag_for(path)}\n{text}{fence}")
    return "\n\n".join([*parts, question])
