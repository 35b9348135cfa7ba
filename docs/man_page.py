"""The manual page `vivace.1`, from the same texts as `vivace --help`. `generate.py` writes and compares it.

Owns the page's form (man(7)) and the few sections that no help has: files, environment, exit status.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import click

FILES = {
    "~/.config/vivace/config.toml": "settings",
    "~/.config/vivace/AGENTS.md": "what every conversation is told",
    "~/.local/state/vivace/token": "the token of the server, for other programs",
    "~/.local/state/vivace": "conversations, journals, tasks, keys",
    "~/.cache/vivace": "models, parked KV, llama.cpp as it was built",
}
ENVIRONMENT = {
    "VIVACE_MODEL": "the model, as \\-\\-model",
    "VIVACE_CACHE_DIR, VIVACE_STATE_DIR": "other folders than those above",
    "VIVACE_…": "any other setting, by its name in capitals",
}
EXIT_STATUS = {
    "0": "done",
    "1": "failed",
    "2": "wrong usage",
    "3": "could not start",
    "4": "approval needed",
    "5": "limit reached",
    "75": "busy, try again later",
    "130": "interrupted",
}


def man_page(app: click.Group) -> str:
    """Return the page as roff."""
    root = click.Context(app, info_name="vivace")
    lines = ['.TH VIVACE 1 "" "" "Vivace"', ".SH NAME", "vivace \\- real\\-time coding on your own machine"]
    lines += [".SH SYNOPSIS", *_usage(app, root), ".SH DESCRIPTION"]
    lines += [*_paragraphs(_help(app)), *_options(app, root), ".SH COMMANDS"]
    for name in app.list_commands(root):
        command = app.get_command(root, name)
        assert command is not None
        lines += _command(command, click.Context(command, info_name=name, parent=root))
    for title, entries in (("FILES", FILES), ("ENVIRONMENT", ENVIRONMENT), ("EXIT STATUS", EXIT_STATUS)):
        lines.append(f".SH {title}")
        for name, meaning in entries.items():
            lines += [".TP", f"\\fB{_escaped(name)}\\fR", meaning]
    lines += [".SH SEE ALSO", "The guides and the reference in the folder", ".I docs", "of the repository."]
    return "\n".join(lines) + "\n"


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f".SS {_escaped(context.command_path)}"
    yield from _usage(command, context)
    yield ".PP"
    yield from _paragraphs(_help(command))
    yield from _options(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _command(inner, click.Context(inner, info_name=name, parent=context))


def _usage(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f".B {_escaped(context.command_path)}"
    yield _escaped(" ".join(command.collect_usage_pieces(context)))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for each in command.params:
        record = each.get_help_record(context) if isinstance(each, click.Option) else None
        if record:
            yield from (".TP", f"\\fB{_escaped(record[0])}\\fR", _escaped(re.sub(r"\s+", " ", record[1])))


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n{2,}", text)):
        if number:
            yield ".PP"
        yield _escaped(" ".join(paragraph.replace("\b", "").split()))


def _help(command: Any) -> str:
    return inspect.cleandoc(command.help or "")


def _escaped(text: str) -> str:
    """Return text in which nothing is a request or an escape of roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\`").replace("~", "\\(ti")
    return f"\\&{text}" if text.startswith((".", "'")) else text
