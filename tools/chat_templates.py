"""Write docs/reference/templates.md: what Vivace makes of each chat template of llama.cpp's collection.

    python tools/chat_templates.py FOLDER_OF_TEMPLATES > docs/reference/templates.md

The folder is `templates/VERSION/templates` in the cache, once the tests have run. Owns the table. The verdict
is the one that a pull gets (`families.choose.known`).
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from vivace.models.families.choose import known

HEAD = """\
# Chat templates

Vivace talks to a model in the words of the chat template inside its file. Each template of llama.cpp's
collection is tried on conversations of every kind: turns, instructions, tools, calls, results, reasoning.
Written message by message, the text must be the template's own. A template that cannot be held so is not
spoken, and its models are not downloaded. Made by `python tools/chat_templates.py`.

| template | result |
|---|---|
"""


def table(sources: Mapping[str, str]) -> str:
    """Return the page for these templates, by name."""
    return HEAD + "".join(f"| {name} | {_result(source)} |\n" for name, source in sorted(sources.items()))


def _result(source: str) -> str:
    told = known(source)
    if told.refusal:
        return f"refused: {told.refusal}"
    return " ".join(("held, with notes:", *told.notes)) if told.notes else "held"


if __name__ == "__main__":
    paths = Path(sys.argv[1]).glob("*.jinja")
    sys.stdout.write(table({path.stem: path.read_text("utf-8") for path in paths}))
