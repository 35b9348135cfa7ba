"""Fill the reference pages from the code. `.venv/bin/python docs/generate.py` writes, `--check` compares.

Owns what stands between `<!-- generated: NAME -->` and `<!-- end -->` in docs/reference/*.md, and all of
vivace.1 (`man_page`). The texts are the code's own: docstrings, help strings, and the comments of fields
(above a field or behind it). Does not own the prose around them. `tests/docs/test_reference.py` compares.
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from code_shapes import SOURCE, Field, Shape, fields_table, section, shapes, table, told_table
from man_page import man_page

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
MANUAL = ROOT / "docs" / "vivace.1"
OURS = "Ours: "  # begins the comment of a field that OpenAI's API does not have
REGION = re.compile(r"(<!-- generated: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


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
        if isinstance(command, click.Group) and command is not app:
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                add(inner, click.Context(inner, info_name=name, parent=context))

    root = click.Context(app, info_name="vivace")
    add(app, root)
    for name in app.list_commands(root):
        command = app.get_command(root, name)
        assert command is not None
        add(command, click.Context(command, info_name=name, parent=root))
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
        (errors.APPROVAL_NEEDED, "approval needed"),
        (errors.LIMIT_REACHED, "limit reached"),
        (errors.BUSY, "busy: try again later"),
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


def machines() -> str:
    """Return what is recommended for machines of every size."""
    from vivace.config import Settings
    from vivace.engine.tuning.recommend import recommend, usual_machines

    context_tokens = Settings(cache_dir=Path(), state_dir=Path()).context_tokens
    rows = []
    for name, machine in usual_machines():
        picks = [f"`{pick.model.name}` ({pick.fit.speed})" for pick in recommend(machine, context_tokens)]
        bandwidth = machine.gpu_bytes_per_second or machine.bytes_per_second
        rows.append([name, f"{bandwidth / 1e9:,.0f} GB/s", picks[0], ", ".join(picks[1:])])
    return table(["machine", "bandwidth", "best", "also"], rows)


def recommended_models() -> str:
    from vivace.models.hub.curated import CURATED

    memory = {"exact": "anywhere", "bounded": "a window", "checkpoints": "saved points"}
    rows = [
        [
            f"`{model.name}`",
            f"[{model.hub.repo}](https://huggingface.co/{model.hub.repo}), {model.hub.wanted}",
            f"{model.size_bytes / 1e9:.1f} GB",
            f"{model.context_tokens:,}",
            model.licence,
            memory[model.memory],
            "yes" if model.has_mtp else "",
            model.purpose,
        ]
        for model in CURATED
    ]
    return table(["name", "files", "size", "context", "licence", "goes back", "MTP", "for"], rows)


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
    known["Grammar"] = shapes("models/families/base.py")["Grammar"]  # the family that writes it owns it
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
    known = shapes("protocol/shapes/controls.py")
    names = {"response.cancel": "ResponseCancel", "response.steer": "ResponseSteer"}
    names |= {"response.interrupt": "ResponseInterrupt", "response.answer_now": "ResponseAnswerNow"}
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
        "AnswerNowAccepted",
        "OutputItemInterrupted",
    ):
        tag = getattr(module, name).__struct_config__.tag
        assert known[name].text, f"events.{name} has no docstring"
        parts.append(f"### `{tag}`\n\n{known[name].text}\n\n{told_table(known[name].fields)}")
    return "\n\n".join(parts)


def refusals() -> str:
    """Return every code with which protocol and server refuse a request, with one of its sentences."""
    found: dict[str, tuple[set[str], list[str]]] = {}
    for file in sorted([*(SOURCE / "protocol").rglob("*.py"), *(SOURCE / "server").rglob("*.py")]):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            given = {each.arg: each.value for each in node.keywords} if isinstance(node, ast.Call) else {}
            match given.get("code"):
                case ast.Constant(str(code)):
                    assert isinstance(node, ast.Call)
                    statuses, sentences = found.setdefault(code, (set(), []))
                    statuses.add(_status(given.get("status")))
                    sentences += [text for each in node.args[:1] if (text := _sentence(each))]
    rows = [
        [f"`{code}`", ", ".join(sorted(statuses)), next(iter(sentences), "")]
        for code, (statuses, sentences) in sorted(found.items())
    ]
    return table(["code", "status", "for example"], rows)


def _status(given: ast.expr | None) -> str:
    if given is None:
        return "400"
    return str(given.value) if isinstance(given, ast.Constant) else "varies"


def _sentence(given: ast.expr) -> str:
    """Return a message as it stands in the source, with … for what is filled in; "" if it is not there."""
    match given:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(values):
            return "".join(_sentence(each) or "…" for each in values)
    return ""


def transcript_records() -> str:
    """Return the lines of a transcript, in the order of the union that lists them."""
    from vivace.agent.conversation.transcript.records import AnyRecord
    from vivace.agent.events.turn import Result

    return _lines((*AnyRecord.__args__, Result))


def task_steps() -> str:
    """Return the lines of a task, in the order of the union that lists them."""
    from vivace.agent.events import task as steps

    return _lines(steps.AnyStep.__args__)


def _lines(kinds: tuple[Any, ...]) -> str:
    parts = []
    for kind in kinds:
        file = kind.__module__.removeprefix("vivace.").replace(".", "/") + ".py"
        shape = shapes(file)[kind.__name__]
        assert shape.text, f"{file}: {kind.__name__} has no docstring"
        fields = told_table(shape.fields) if shape.fields else ""
        parts.append("\n\n".join(filter(None, [f"### `{kind.__struct_config__.tag}`", shape.text, fields])))
    return "\n\n".join(parts)


def face_requests() -> str:
    """Return what a face may ask, in the order of the union that lists it."""
    from vivace.web.messages import requests

    modules = {base.__module__ for kind in requests.AnyRequest.__args__ for base in kind.__mro__}
    files = [f"web/messages/{each.rpartition('.')[2]}.py" for each in modules if "web.messages" in each]
    known = {name: shape for file in files for name, shape in shapes(file).items()}
    inherited = {"ConversationRequest", "EditRequest", "TaskRequest"}
    parts = []
    for kind in requests.AnyRequest.__args__:
        above = [
            one for base in kind.__mro__ if base.__name__ in inherited for one in known[base.__name__].fields
        ]
        fields = [*above, *known[kind.__name__].fields]
        assert known[kind.__name__].text, f"requests.{kind.__name__} has no docstring"
        heading = f"### `{kind.__struct_config__.tag}`"
        told = fields_table(fields) if fields else ""
        parts.append("\n\n".join(filter(None, [heading, known[kind.__name__].text, told])))
    return "\n\n".join([*parts, section(known["LineRange"])])


def face_events() -> str:
    """Return the events that no transcript keeps, and their parts."""
    from vivace.web.messages import events

    file = "web/messages/events.py"
    known = shapes(file)
    parts = [section(known[name]) for name in ("FileAsked", "HunkAsked", "AcceptedFile")]
    return "\n\n".join([_lines(events.AnyTransient.__args__), *parts])


def face_answers() -> str:
    """Return what is answered."""
    from vivace.web.messages import answers

    known = shapes("web/messages/answers.py")
    return "\n\n".join(
        f"### `{kind.__name__}`\n\n{known[kind.__name__].text}\n\n{told_table(known[kind.__name__].fields)}"
        for kind in answers.ANSWERS
    )


def metrics() -> str:
    from vivace.server.watch.metrics import Metrics

    rows = [[f"`{one.name}`", one.kind, ", ".join(one.labels), one.help] for one in Metrics().page.families]
    return table(["name", "type", "labels", "meaning"], rows)


REGIONS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "commands": commands,
    "exit codes": exit_codes,
    "machines": machines,
    "recommended models": recommended_models,
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
    "refusals": refusals,
    "transcript records": transcript_records,
    "task steps": task_steps,
    "metrics": metrics,
    "face requests": face_requests,
    "face events": face_events,
    "face answers": face_answers,
}


# ---- filling them in --------------------------------------------------------------------------------


def filled(text: str) -> str:
    """Return the page with every generated region as the code has it now."""
    return REGION.sub(lambda found: f"{found[1]}\n{REGIONS[found[2]]()}\n\n{found[3]}", text)


def _manual() -> str:
    from vivace.cli.main import app

    return man_page(app)


def main(arguments: list[str]) -> int:
    is_check = arguments == ["--check"]
    if arguments and not is_check:
        print("Usage: docs/generate.py [--check]", file=sys.stderr)
        return 2
    pages = {page: page.read_text("utf-8") for page in sorted(PAGES.glob("*.md"))}
    used = {name for text in pages.values() for _, name, _ in REGION.findall(text)}
    assert used == REGIONS.keys(), f"no page shows {REGIONS.keys() - used}"
    stale = {page: new for page, text in pages.items() if (new := filled(text)) != text}
    manual = _manual()
    if not MANUAL.exists() or MANUAL.read_text("utf-8") != manual:
        stale[MANUAL] = manual
    for page, new in stale.items():
        if not is_check:
            page.write_text(new, "utf-8")
        print(f"{page.relative_to(ROOT)} {'is stale' if is_check else 'is written'}.")
    if stale and is_check:
        print("Mend it with: .venv/bin/python docs/generate.py")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
