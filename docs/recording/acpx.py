"""Record `vivace acp` behind a real client of the protocol, as the picture of docs/guides/acp.md.

    npm install --prefix FOLDER acpx
    PATH="FOLDER/node_modules/.bin:$PATH" .venv/bin/python docs/recording/acpx.py

Types two commands of acpx in a terminal (tmux): a question and an edit of examples/todo.py, then shows what
has changed. The screens are its own, at their true times; a wait that is played faster says so. Needs tmux,
acpx and its Node.js.
"""

import argparse
import os
import platform
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from picture import draw, timeline
from record import EXAMPLE, environment_of, with_own_server
from terminal import Frame, RecordedTerminal

from vivace.child_python import module_command
from vivace.client import warm
from vivace.config import Settings

OUT = Path(__file__).parents[1] / "guides"
COLUMNS, ROWS = 104, 45
PROMPT = "$ "


@dataclass(frozen=True)
class Scene:
    """What is asked of the agent, in two calls of the client."""

    question: str = "What does @todo.py:load return when there is no file? One sentence."
    edit: str = "make @todo.py:TodoList.add refuse an empty title with a ValueError"


def record(settings: Settings, folder: Path, scene: Scene) -> list[Frame]:
    """Play the scene in a folder of its own; the server is warm before."""
    work = folder / "todo"
    work.mkdir()
    file = work / EXAMPLE.name
    shutil.copy(EXAMPLE, file)
    old = file.read_bytes()
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "vivace"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(module_command("vivace"))} "$@"\n')
    program.chmod(0o755)
    environment = environment_of(settings)
    environment |= {"PATH": f"{programs}:{environment['PATH']}", "HOME": str(folder), "PS1": PROMPT}
    warm.ensure_server(settings)
    with RecordedTerminal(folder, work, environment, columns=COLUMNS, rows=ROWS) as terminal:
        terminal.open("bash", "--norc", "--noprofile")
        terminal.sees(PROMPT.rstrip())
        for asked in (scene.question, scene.edit):
            terminal.type(f"acpx --agent 'vivace acp' --approve-all exec {shlex.quote(asked)}")
            terminal.press("Enter")
            terminal.until(_is_over, "the end of acpx")
            terminal.rest(2.5)
        shutil.copy(EXAMPLE, folder / "before.py")
        terminal.type("diff ../before.py todo.py")
        terminal.press("Enter")
        terminal.sees("\n> ")
        terminal.rest(1.0)
        assert file.read_bytes() != old, "the edit was not written"
        return terminal.frames


def _is_over(text: str) -> bool:
    """Return whether the last line with anything on it is the shell's own."""
    return "[done]" in text and text.rstrip().splitlines()[-1] == PROMPT.rstrip()


def write(frames: list[Frame], out: Path, model: str) -> None:
    """Write the picture. What a reader sees who has no moving pictures is the end."""
    title = f"acpx · vivace acp · {model} · {os.cpu_count()} cores, {platform.machine()}, no GPU · a real run"
    shown = timeline(frames)
    svg = draw(shown, columns=COLUMNS, rows=ROWS, title=title, poster=len(shown) - 1)
    out.mkdir(parents=True, exist_ok=True)
    (out / "acp.svg").write_text(svg, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    missing = [name for name in ("tmux", "acpx") if shutil.which(name) is None]
    if missing:
        sys.exit(f"The recording needs {' and '.join(missing)}.")

    def play(settings: Settings, folder: Path) -> None:
        write(record(settings, folder, Scene()), given.out, settings.model)

    with_own_server(given.model, play)


if __name__ == "__main__":
    main()
