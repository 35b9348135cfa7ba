"""Record a real run of `vivace` as the picture that opens README.

    .venv/bin/python docs/recording/record.py [--model NAME] [--out FOLDER]

Runs the program in a terminal (tmux) with a warm server on a copy of examples/todo.py: an edit is typed, its
diff grows, it is steered in the middle, taken, and undone. Writes `edit.svg`, and `edit.txt` with the same
screens as text. Nothing is made up: each screen is the program's own, at its true time, and a wait that is
played faster says so in the picture. Needs tmux.
"""

import argparse
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from colours import runs
from picture import Shown, draw, timeline
from terminal import RecordedTerminal

from vivace.child_python import module_command
from vivace.client import warm
from vivace.config import Settings, load_settings

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "todo.py"
COLUMNS, ROWS = 92, 30
MAX_BYTES = 400_000  # of the picture


@dataclass(frozen=True)
class Scene:
    """What is typed. The steer comes as soon as the screen shows `turning`."""

    instruction: str = "write docstrings with examples in @todo.py:TodoList please"
    turning: str = "def add"
    steer: str = "one short line each"


@dataclass
class Recording:
    """The frames, and which of them were the moments that matter."""

    shown: list[Shown]
    moments: dict[str, float]  # a name and the true time of each
    load: float  # of the machine before, without the recording itself


def record(settings: Settings, folder: Path, scene: Scene) -> Recording:
    """Play the scene in a folder of its own; the server is warm before."""
    work = folder / "todo"
    work.mkdir()
    file = work / EXAMPLE.name
    shutil.copy(EXAMPLE, file)
    old = file.read_bytes()
    environment = environment_of(settings)
    warm.ensure_server(settings)
    moments: dict[str, float] = {}
    load = os.getloadavg()[0]
    with RecordedTerminal(folder, work, environment, columns=COLUMNS, rows=ROWS) as terminal:

        def mark(name: str) -> None:
            moments[name] = terminal.frames[-1].at_s

        terminal.open(*module_command("vivace"))
        terminal.sees("ready")
        terminal.rest(0.8)
        terminal.type(scene.instruction)
        terminal.press("Enter")
        terminal.until(lambda text: scene.turning in _behind(text, "› "), "the diff")
        mark("The diff grows while the model writes")
        terminal.type(scene.steer)
        terminal.press("Enter")
        terminal.sees_once("↪")
        mark("Steered in the middle: the first try is struck through")
        terminal.sees("take it")
        mark("The new one is proposed")
        terminal.rest(2.5)
        terminal.press("y")
        terminal.sees("written")
        mark("Taken")
        assert file.read_bytes() != old, "the edit was not written"
        terminal.rest(1.5)
        terminal.type("/undo")
        terminal.press("Enter")
        terminal.sees("Took back the change")
        terminal.rest(0.3)
        mark("Undone")
        assert file.read_bytes() == old, "the edit was not undone"
        return Recording(timeline(terminal.frames), moments, load)


def _behind(text: str, mark: str) -> str:
    """Return the part of the screen behind the user's message."""
    return text.partition(mark)[2].partition("\n")[2]


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the environment in which the program has these settings and no others."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VIVACE_", "XDG_"))}
    kept.pop("NO_COLOR", None)
    given = {
        "CACHE_DIR": str(settings.cache_dir),
        "STATE_DIR": str(settings.state_dir),
        "MODEL": settings.model,
        "PORT": "0",
        "TUNE": "never",
        "ALLOW_SCRIPTED": "1" if settings.allow_scripted else "0",
    }
    return kept | {f"VIVACE_{name}": value for name, value in given.items()} | {"LC_ALL": "C.UTF-8"}


def write(recording: Recording, out: Path, model: str) -> None:
    """Write the picture and the text."""
    cores = os.cpu_count() or 1
    busy = f", load {recording.load:.0f}" if recording.load > cores else ""
    title = f"vivace · {model} · {cores} cores, {platform.machine()}, no GPU · a real run{busy}"
    growing = min(recording.moments.values())
    shown = recording.shown
    poster = next((index for index, each in enumerate(shown) if each.frame.at_s >= growing), 0)
    svg = draw(shown, columns=COLUMNS, rows=ROWS, title=title, poster=poster)
    if len(svg.encode()) > MAX_BYTES:
        print(f"careful: the picture has {len(svg.encode())} bytes, more than {MAX_BYTES}", file=sys.stderr)
    out.mkdir(parents=True, exist_ok=True)
    (out / "edit.svg").write_text(svg, encoding="utf-8")
    (out / "edit.txt").write_text(as_text(recording, title), encoding="utf-8")


def as_text(recording: Recording, title: str) -> str:
    """Return the screens of the moments that matter, without colours."""
    parts = [title]
    for name, at_s in recording.moments.items():
        frame = [each.frame for each in recording.shown if each.frame.at_s <= at_s][-1]
        rows = ["".join(run.text for run in runs(row)).rstrip() for row in frame.rows]
        while rows and not rows[0]:
            rows.pop(0)
        parts.append(f"== {name} ({at_s:.1f} s)\n\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def with_own_server(model: str | None, work: Callable[[Settings, Path], None]) -> None:
    """Do the work with a folder and settings of its own, and stop the server that it started."""
    own = load_settings().having(model=model)
    with tempfile.TemporaryDirectory() as name:
        settings = own.having(state_dir=Path(name) / "state", port=0, tune="never")
        try:
            work(settings, Path(name))
        finally:
            warm.stop_server(settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    if shutil.which("tmux") is None:
        sys.exit("The recording needs tmux.")

    def play(settings: Settings, folder: Path) -> None:
        write(record(settings, folder, Scene()), given.out, settings.model)

    with_own_server(given.model, play)


if __name__ == "__main__":
    main()
