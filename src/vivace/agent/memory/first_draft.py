"""A first AGENTS.md, from the repository itself: its languages, how it is built and tested, its layout.

Owns what is said, and that it is found and not guessed: the same repository gives the same text. The model
adds one paragraph if that is asked for. Does not write the file: it is a proposal like any edit (`edits`).
"""

import asyncio
from collections import Counter, defaultdict
from contextlib import aclosing
from pathlib import Path

from vivace.agent.conversation.message.repository import Listed, list_files
from vivace.agent.door import real_path
from vivace.agent.edits.apply.source import new_source
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.units import new_file_unit
from vivace.agent.edits.proposal import Proposal, make_proposal
from vivace.agent.memory.build_files import read_facts
from vivace.agent.memory.instructions import NAMES
from vivace.agent.model import Model
from vivace.agent.prompting import read_prompt, user
from vivace.errors import FileProblem

INSTRUCTION = "Write a first AGENTS.md."
MAX_FOLDERS = 30
MAX_NAMES = 6  # of a folder's units
SUMMARY_TOKENS = 160
README_CHARS = 3000  # that the model reads of it


def check_absent(root: Path) -> None:
    """Raise `FileProblem` if the project has instructions already: they are never overwritten."""
    for name in NAMES:
        if (root / name).exists():
            raise FileProblem(f"{root / name} is there already.", f"Edit it: vivace edit {name} “…”.")


def draft(root: Path, summary: str = "") -> str:
    """Return the text. `summary` is a paragraph about what the project is."""
    facts, listed = read_facts(root), list_files(root)
    parts = [f"# {facts.name or root.name}"]
    parts += filter(None, [facts.description, summary])
    parts += _section("Code", [*_languages(listed), *facts.style])
    parts += _section("Build and test", [f"`{command}`{_note(why)}" for command, why in facts.commands])
    parts += _section("Layout", _layout(listed))
    return "\n\n".join(parts) + "\n"


def proposed(root: Path, text: str) -> Proposal:
    """Return the file as a proposal, which is shown and asked about like any edit."""
    path = root / NAMES[0]
    source = new_source(path, real_path(root) / NAMES[0])  # a link of that name is not followed
    return Proposal((make_proposal(source, new_file_unit(source), INSTRUCTION, text.encode()),))


async def summarize(model: Model, root: Path) -> str:
    """Let the model say in a paragraph what the project is. Return "" if nothing useful came."""
    asked = user(await asyncio.to_thread(_what_it_reads, root))
    said = ""
    async with aclosing(model.write([*read_prompt("describe"), asked], max_tokens=SUMMARY_TOKENS)) as deltas:
        async for delta in deltas:
            said += delta
    first = said.strip().split("\n\n")[0]
    return " ".join(first.split()) if first and not first.startswith(("#", "```", "-")) else ""


def _what_it_reads(root: Path) -> str:
    readme = next((path for path in sorted(root.glob("README*")) if path.is_file()), None)
    beginning = readme.read_text("utf-8", "replace")[:README_CHARS] if readme else ""
    return "\n\n".join(filter(None, [beginning, draft(root)]))


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {line}" for line in lines)] if lines else []


def _note(why: str) -> str:
    return f" ({why})" if why else ""


def _languages(listed: list[Listed]) -> list[str]:
    named = Counter(language.name for each in listed if (language := language_for(each.path)) is not None)
    counted = [f"{name} ({count} file{'' if count == 1 else 's'})" for name, count in named.most_common(4)]
    return [f"Languages: {', '.join(counted)}."] if counted else []


def _layout(listed: list[Listed]) -> list[str]:
    """Return a line for each folder. The largest is split into those below it while there is room."""
    folders: dict[Path, list[Listed]] = {Path(): list(listed)} if listed else {}
    while splits := {folder: parts for folder in folders if (parts := _split(folder, folders[folder]))}:
        largest = max(splits, key=lambda folder: (len(folders[folder]), str(folder)))
        if len(folders) + len(splits[largest]) - 1 > MAX_FOLDERS:
            break
        del folders[largest]
        folders |= splits[largest]
    return [_folder_line(folder, folders[folder]) for folder in sorted(folders)]


def _split(folder: Path, files: list[Listed]) -> dict[Path, list[Listed]]:
    """Return the files by the folders below this one; nothing if all are directly in it, or it has tests."""
    if _is_of_tests(folder):
        return {}
    parts: dict[Path, list[Listed]] = defaultdict(list)
    depth = len(folder.parts)
    for each in files:
        inside = each.path.parent.parts
        parts[folder / inside[depth] if len(inside) > depth else folder].append(each)
    return {} if list(parts) == [folder] else dict(parts)


def _is_of_tests(folder: Path) -> bool:
    return bool({"test", "tests", "testing", "spec"} & set(folder.parts))


def _folder_line(folder: Path, files: list[Listed]) -> str:
    names = [name for each in files for name in each.names if "." not in name]
    telling = [] if _is_of_tests(folder) else [name for name in names if not name.startswith(("_", "test"))]
    shown = [f"`{name}`" for name in list(dict.fromkeys(telling))[:MAX_NAMES]]
    where = f"`{folder}/`" if folder.parts else "top level"
    count = f"{len(files)} file{'' if len(files) == 1 else 's'}"
    return f"{where}: {count}; {', '.join(shown)}" if shown else f"{where}: {count}"
