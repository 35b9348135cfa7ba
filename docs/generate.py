"""Fill the reference pages from the code. `.venv/bin/python docs/generate.py` writes, `--check` compares.

Owns what stands between `<!-- generated: NAME -->` and `<!-- end -->` in docs/reference/*.md. The texts are
the code's own: docstrings, help strings, and the comments of fields (above a field or behind it). Does not
own the prose around them. `tests/docs/test_reference.py` runs `--check`.
"""

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "vivace"
PAGES = ROOT / "docs" / "reference"
OURS = "Ours: "  # begins the comment of a field that OpenAI's API does not have
REGION = re.compile(r"(<!-- generated: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Field:
    name: str
    kind: str  # its type, as a reader writes it
    default: str  # as in the source; "" if it must be given
    text: str


@dataclass(frozen=True)
class Shape:
    """A class whose fields are documented."""

    name: str
    text: str
    fields: list[Field]


# ---- reading the source -----------------------------------------------------------------------------


def shapes(file: str) -> dict[str, Shape]:
    """Return the classes of a module of src/vivace, by name, in the order of the file."""
    source = (SOURCE / file).read_text("utf-8")
    comments = dict(_comments(source))
    lines = source.splitlines()
    body = ast.parse(source).body
    aliases = {ast.unparse(node.targets[0]): node.value for node in body if isinstance(node, ast.Assign)}
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    return {
        node.name: Shape(
            node.name,
            " ".join((ast.get_docstring(node) or "").split()),
            [
                _field(statement, aliases, comments, lines)
                for statement in node.body
                if isinstance(statement, ast.AnnAssign) and "ClassVar" not in ast.dump(statement.annotation)
            ],
        )
        for node in classes
    }


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ").removeprefix("type: ignore")


def _field(
    statement: ast.AnnAssign, aliases: dict[str, ast.expr], comments: dict[int, str], lines: list[str]
) -> Field:
    above = []
    row = statement.lineno - 1
    while row in comments and lines[row - 1].lstrip().startswith("#"):
        above.append(comments[row])
        row -= 1
    assert statement.end_lineno is not None
    behind = [comments.get(row, "") for row in range(statement.lineno, statement.end_lineno + 1)]
    return Field(
        ast.unparse(statement.target),
        _kind(statement.annotation, aliases),
        ast.unparse(statement.value) if statement.value else "",
        " ".join(filter(None, [*reversed(above), *behind])),
    )


def _kind(annotation: ast.expr, aliases: dict[str, ast.expr]) -> str:
    """Return a type as a reader writes it: aliases and `Annotated` resolved, `Literal` as its values."""
    match annotation:
        case ast.BinOp(left, ast.BitOr(), ast.Constant(None) | ast.Name("UnsetType")):
            return _kind(left, aliases)  # what may be left out has a default, which is shown
        case ast.BinOp(left, ast.BitOr(), right):
            return f"{_kind(left, aliases)} or {_kind(right, aliases)}"
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([inner, *_])):
            return _kind(inner, aliases)
        case ast.Subscript(ast.Name("Literal"), ast.Tuple(values)):
            return " or ".join(str(ast.literal_eval(value)) for value in values)
        case ast.Subscript(ast.Name(outer), ast.Tuple(inner)):
            return f"{outer}[{', '.join(_kind(each, aliases) for each in inner)}]"
        case ast.Subscript(ast.Name(outer), inner):
            return f"{outer}[{_kind(inner, aliases)}]"
        case ast.Name(alias) if alias in aliases:
            return _kind(aliases[alias], aliases)
        case ast.Attribute(attr="Raw"):
            return "JSON"
    return ast.unparse(annotation)


# ---- writing tables ---------------------------------------------------------------------------------


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def fields_table(fields: Iterable[Field]) -> str:
    rows = [
        [f"`{one.name}`", f"`{one.kind}`", f"`{one.default}`" if one.default else "must be given", one.text]
        for one in fields
    ]
    return table(["field", "type", "default", "meaning"], rows)


def told_table(fields: Iterable[Field]) -> str:
    """Return a table of what the server sends: nothing there is left to choose, so no defaults."""
    return table(
        ["field", "type", "meaning"], [[f"`{one.name}`", f"`{one.kind}`", one.text] for one in fields]
    )


def section(shape: Shape, *, level: str = "###") -> str:
    parts = [f"{level} `{shape.name}`", shape.text, fields_table(shape.fields) if shape.fields else ""]
    return "\n\n".join(part for part in parts if part)


# ---- the pages --------------------------------------------------------------------------------------


def settings() -> str:
    from vivace.config import Settings

    defaults = Settings(cache_dir=Path(), state_dir=Path())
    rows = []
    for one in shapes("config.py")["Settings"].fields:
        assert one.text, f"config.Settings.{one.name} has no comment that says what it does"
        value = getattr(defaults, one.name)
        default = f"`{_toml(value)}`" if one.default else ""
        is_table = isinstance(value, dict)
        variable = "" if is_table else f"`VIVACE_{one.name.upper()}`"
        rows.append([f"`{one.name}`", f"{one.kind}", default, variable, one.text])
    return table(["key", "type", "default", "variable", "meaning"], rows)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def commands() -> str:
    import click

    from vivace.cli.main import app

    parts: list[str] = []

    def add(command: click.Command, context: click.Context) -> None:
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        parts.append(f"## `{context.command_path}`\n\n{_help_of(command)}")
        parts.append(f"```\n{usage}\n```")
        rows = [_option(each, context) for each in command.params if isinstance(each, click.Option)]
        if rows:
            parts.append(table(["option", "meaning"], rows))
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                add(inner, click.Context(inner, info_name=name, parent=context))

    root = click.Context(app, info_name="vivace")
    for name in app.list_commands(root):
        add(app.commands[name], click.Context(app.commands[name], info_name=name, parent=root))
    return "\n\n".join(parts)


def _help_of(command: Any) -> str:
    text = inspect.cleandoc(command.help or "")
    assert text, f"{command.name} has no help"
    return text


def _option(option: Any, context: Any) -> list[str]:
    record = option.get_help_record(context)
    assert record is not None, option.name
    assert record[1], f"{context.command_path} {record[0]} has no help"
    return [f"`{record[0]}`", re.sub(r" {2,}", " ", record[1])]


def exit_codes() -> str:
    from vivace import errors

    rows = []
    for code, name in (
        (errors.DONE, "done"),
        (errors.FAILED, "failed"),
        (errors.USAGE, "wrong usage"),
        (errors.COULD_NOT_START, "could not start"),
        (errors.INTERRUPTED, "interrupted"),
    ):
        ending = [each for each in _errors() if each.exit_code == code]
        rows.append([str(code), name, ", ".join(f"`{each.code}`" for each in ending)])
    return table(["exit code", "meaning", "errors"], rows)


def error_codes() -> str:
    rows = [[f"`{each.code}`", str(each.exit_code), inspect.getdoc(each) or ""] for each in _errors()]
    return table(["code", "exit code", "meaning"], rows)


def _errors() -> list[Any]:
    from vivace import errors

    kinds = [each for _, each in inspect.getmembers(errors, inspect.isclass)]
    own = [
        each for each in kinds if issubclass(each, errors.VivaceError) and each.__module__ == errors.__name__
    ]
    return sorted(own, key=lambda each: (each.exit_code, each.code))


def frames(union: str) -> str:
    """Return the frames of one direction, in the order of the union that lists them."""
    from vivace.engine.wire import frames as module

    known = shapes("engine/wire/frames.py")
    parts = []
    for kind in getattr(module, union).__args__:
        assert known[kind.__name__].text, f"frames.{kind.__name__} has no docstring"
        parts.append(section(known[kind.__name__]))
    return "\n\n".join(parts)


def frame_parts() -> str:
    """Return the shapes inside frames: neither a frame nor an error nor the framing."""
    from vivace.engine.wire import frames as module

    known = shapes("engine/wire/frames.py")
    inner = [name for name, shape in known.items() if shape.fields and not _is_frame(getattr(module, name))]
    return "\n\n".join(section(known[name]) for name in inner)


def _is_frame(kind: type) -> bool:
    from vivace.engine.wire.frames import Frame

    return issubclass(kind, Frame)


def job() -> str:
    return fields_table(shapes("engine/wire/job.py")["Job"].fields)


def request_additions() -> str:
    return _additions(shapes("protocol/shapes/requests.py")["ResponseCreate"])


def request_fields() -> str:
    """Return the names of OpenAI's own fields that a request may have."""
    fields = shapes("protocol/shapes/requests.py")["ResponseCreate"].fields
    read = [one for one in fields if not one.text.startswith((OURS, "refused"))]
    return ", ".join(f"`{one.name}`" for one in read) + "."


def response_additions() -> str:
    return _additions(shapes("protocol/shapes/events.py")["Response"])


def _additions(shape: Shape) -> str:
    ours = [one for one in shape.fields if one.text.startswith(OURS)]
    assert ours, f"{shape.name}: no field's comment begins with {OURS!r}"
    return told_table(replace(one, text=one.text.removeprefix(OURS)) for one in ours)


def extension() -> str:
    known = shapes("protocol/shapes/events.py")
    names = {"vivace": "Extension", "vivace.waterfall": "Waterfall", "vivace.queue": "Place"}
    return "\n\n".join(
        f"### `response.{field}`\n\n{known[name].text}\n\n{told_table(known[name].fields)}"
        for field, name in names.items()
    )


def messages() -> str:
    """Return what a client may send on a WebSocket besides `response.create`."""
    known = shapes("protocol/shapes/requests.py")
    names = {"response.cancel": "ResponseCancel", "response.steer": "ResponseSteer"}
    names["response.interrupt"] = "ResponseInterrupt"
    return "\n\n".join(
        f"### `{message}`\n\n{known[name].text}\n\n{fields_table(_sent(known[name].fields))}"
        for message, name in names.items()
    )


def _sent(fields: list[Field]) -> list[Field]:
    return [one for one in fields if not one.text.startswith("internal")]


def socket_events() -> str:
    """Return the events of steering and interrupts, and others that OpenAI's HTTP API does not have."""
    from vivace.protocol.shapes import events as module

    known = shapes("protocol/shapes/events.py")
    parts = []
    for name in (
        "SteerAccepted",
        "SteerPending",
        "SteerFailed",
        "InterruptAccepted",
        "OutputItemInterrupted",
    ):
        tag = getattr(module, name).__struct_config__.tag
        assert known[name].text, f"events.{name} has no docstring"
        parts.append(f"### `{tag}`\n\n{known[name].text}\n\n{told_table(known[name].fields)}")
    return "\n\n".join(parts)


def metrics() -> str:
    from vivace.server.watch.metrics import Metrics

    rows = [[f"`{one.name}`", one.kind, ", ".join(one.labels), one.help] for one in Metrics().page.families]
    return table(["name", "type", "labels", "meaning"], rows)


REGIONS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "commands": commands,
    "exit codes": exit_codes,
    "error codes": error_codes,
    "frames to the engine": lambda: frames("ToEngine"),
    "frames from the engine": lambda: frames("FromEngine"),
    "parts of frames": frame_parts,
    "job": job,
    "request additions": request_additions,
    "request fields": request_fields,
    "response additions": response_additions,
    "extension": extension,
    "messages": messages,
    "socket events": socket_events,
    "metrics": metrics,
}


# ---- filling them in --------------------------------------------------------------------------------


def filled(text: str) -> str:
    """Return the page with every generated region as the code has it now."""
    return REGION.sub(lambda found: f"{found[1]}\n{REGIONS[found[2]]()}\n\n{found[3]}", text)


def main(arguments: list[str]) -> int:
    is_check = arguments == ["--check"]
    if arguments and not is_check:
        print("Usage: docs/generate.py [--check]", file=sys.stderr)
        return 2
    pages = {page: page.read_text("utf-8") for page in sorted(PAGES.glob("*.md"))}
    used = {name for text in pages.values() for _, name, _ in REGION.findall(text)}
    assert used == REGIONS.keys(), f"no page shows {REGIONS.keys() - used}"
    stale = {page: new for page, text in pages.items() if (new := filled(text)) != text}
    for page, new in stale.items():
        if not is_check:
            page.write_text(new, "utf-8")
        print(f"{page.relative_to(ROOT)} {'is stale' if is_check else 'is written'}.")
    if stale and is_check:
        print("Mend it with: .venv/bin/python docs/generate.py")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
