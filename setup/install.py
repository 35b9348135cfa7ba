"""Makes the environment of this machine: pinned Python packages, llama.cpp built for its CPU, our own code.

Owns the order of work, the lock, and the stamp that says that all of it is done. Run by setup/environment.sh
with the system's Python; every part may be interrupted and is taken up again at the next start.
Standard library only. Everything is said on stderr: stdout belongs to the program that starts afterwards.
"""

import argparse
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

from native import PACKAGE, NativeBuild, cache_folder, pip
from steps import StepFailed, Steps, percent_fraction, tail

COULD_NOT_START, INTERRUPTED = 3, 130
FETCHING_NEEDS = ("msgspec",)  # what the code that fetches models imports
PACKAGE_NEEDS = ("diskcache", "jinja2", "numpy", "typing-extensions")  # of the package that is compiled
PROGRAM = """#!/bin/sh
'''exec' "$(dirname "$0")/python" "$0" "$@"
' '''
import sys

from vivace.cli.main import main

sys.exit(main())
"""


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    environment = Path(f"{arguments.root}/.venvs/{arguments.machine_key}-py3.{sys.version_info.minor}")
    log = environment.with_name(f"{environment.name}.log")
    try:
        environment.parent.mkdir(exist_ok=True)
        with environment.with_name(f"{environment.name}.lock").open("w") as lock:
            wait_for_lock(lock.fileno())
            if not is_marked(environment, arguments.mark, arguments.stamp):
                install(arguments, environment, Steps(log, os.environ, lock.fileno()))
        return 0
    except KeyboardInterrupt:
        say("\nStopped. The next start goes on from here.")
        return INTERRUPTED
    except StepFailed as failure:
        return explain(failure, log)
    except OSError as error:
        hint = f"Make sure that {arguments.root} can be written and has about 2 GB free."
        return explain(StepFailed(f"{error.strerror or error}: {error.filename or environment}", hint), log)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--machine-key", required=True)
    parser.add_argument("--stamp", required=True)
    parser.add_argument("--mark", choices=["ready", "ready-dev"], required=True)
    parser.add_argument("command", nargs="*")  # what is to be run afterwards
    return parser.parse_args()


def wait_for_lock(lock: int) -> None:
    """Hold this environment's lock. The system frees it however its holder ends: it is never stale."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another start is setting Vivace up in this folder. Waiting for it …")
        fcntl.flock(lock, fcntl.LOCK_EX)


def install(arguments: argparse.Namespace, environment: Path, steps: Steps) -> None:
    """Compile, and meanwhile install packages and fetch the model that the command will ask for."""
    began_s = time.monotonic()
    if (environment / "ready").exists():
        say(f"Bringing Vivace up to date. Log: {steps.log}")
    else:
        say(f"Setting Vivace up for this machine. This happens once, a few minutes. Log: {steps.log}")
    constraints = arguments.root / "constraints.txt"
    wanted = requirements(arguments.root / "pyproject.toml", with_dev=arguments.mark == "ready-dev")
    python = make_environment(environment, steps)
    link_program(arguments.root, environment)
    try:
        code = [str(python), "-Es", "-m", "compileall", "-q", f"{arguments.root}/src"]
        steps.start_beside("Compiling Python files", "files", code)
        fetch_model(steps, python, constraints, arguments.command)
        build = NativeBuild(arguments.root / "setup", constraints, cache_folder(), arguments.machine_key)
        if not build.is_cached:
            install_beside(steps, python, constraints, wanted)
        wheel = build.wheel(steps, python)
        install_packages(steps, python, wheel, constraints, wanted)
        warm_up(python, arguments.command)
        steps.finish("files")
        try_out = [str(python), "-EsP", "-c", "import llama_cpp, msgspec, vivace.config"]
        steps.run("Looking whether it starts", try_out)
        mark(environment, arguments.mark, arguments.stamp)
        point_editors(arguments.root / ".venv", environment)
        steps.finish("model")
        steps.finish("tidying up")
    finally:
        steps.end_all()
    say(f"Vivace is set up ({time.monotonic() - began_s:.0f} s).")


def fetch_model(steps: Steps, python: Path, constraints: Path, command: list[str]) -> None:
    """Start to fetch the model if the command will ask for one. Should that fail, the command tries again."""
    if not needs_model(command):
        return
    steps.run("Getting ready", [*pip(python), "install", "-c", str(constraints), *FETCHING_NEEDS])
    fetch = [str(python), "-EsP", "-m", "vivace.models.prefetch", *command]
    steps.start_beside("Fetching the model", "model", fetch, percent_fraction)


def warm_up(python: Path, command: list[str]) -> None:
    """Start the server that the command will use, if its model is here; it goes on by itself."""
    if needs_model(command):
        nowhere = subprocess.DEVNULL
        warm = [str(python), "-EsP", "-m", "vivace.cli.warmup", *command]
        subprocess.Popen(warm, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)


def needs_model(command: list[str]) -> bool:
    return command[:1] in (["edit"], ["ask"])


def install_beside(steps: Steps, python: Path, constraints: Path, wanted: list[str]) -> None:
    """Start to install all that need not wait for the compiler. What fails is done by the last pip."""
    rest = [line for line in wanted if not line.startswith(PACKAGE)]
    command = [*pip(python), "install", "--prefer-binary", "-c", str(constraints), *rest, *PACKAGE_NEEDS]
    steps.start_beside("Installing Python packages", "packages", command, collected_fraction(constraints))


def make_environment(environment: Path, steps: Steps) -> Path:
    """A virtual environment; `made` says that it is whole."""
    python, made = environment / "bin" / "python", environment / "made"
    if not (made.exists() and os.access(python, os.X_OK)):
        command = [own_python(), "-EsB", "-m", "venv", "--clear", str(environment)]
        steps.run("Making a Python environment", command)
        made.touch()
    return python


def own_python() -> str:
    """This Python under its full name: on a shared folder `python3` may be another version elsewhere."""
    path = Path(getattr(sys, "_base_executable", sys.executable))
    named = path.with_name(f"python3.{sys.version_info.minor}")
    return str(named if named.exists() and named.samefile(path) else path)


def requirements(pyproject: Path, *, with_dev: bool) -> list[str]:
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    extra = project["optional-dependencies"]["dev"] if with_dev else []
    return [*project["dependencies"], *extra]


def install_packages(steps: Steps, python: Path, wheel: Path, constraints: Path, wanted: list[str]) -> None:
    """Install our own wheel first, by force: an older build of the same version would otherwise stay.

    The rest is there already if all went well beside the compiler; pip takes seconds to find that out.
    """
    has_rest = steps.finish("packages")
    command = [*pip(python), "install", "--no-deps", "--force-reinstall", str(wheel)]
    steps.run(f"Installing {PACKAGE}", command)
    if has_rest:
        return
    command = [*pip(python), "install", "--prefer-binary", "-c", str(constraints), *wanted]
    steps.run("Installing Python packages", command, collected_fraction(constraints))


def collected_fraction(constraints: Path) -> Callable[[bytes], float]:
    """Return how to tell from pip's lines how much of its work is done."""
    total, seen = sum("==" in line for line in constraints.read_text("utf-8").splitlines()), 0

    def fraction(line: bytes) -> float:
        nonlocal seen
        seen += line.startswith((b"Collecting ", b"Requirement already satisfied"))
        return min(0.9, seen / total)

    return fraction


def link_program(root: Path, environment: Path) -> None:
    """Let the environment find src/ (a full path: the environment is also reached through `.venv`)."""
    [packages] = environment.glob("lib/python3*/site-packages")
    (packages / "vivace.pth").write_text(f"{root / 'src'}\n", "utf-8")
    program = environment / "bin" / "vivace"
    program.write_text(PROGRAM, "utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def is_marked(environment: Path, name: str, stamp: str) -> bool:
    marked = environment / name
    has_python = os.access(environment / "bin" / "python", os.X_OK)
    return has_python and marked.exists() and marked.read_text("utf-8") == f"{stamp}\n"


def mark(environment: Path, name: str, stamp: str) -> None:
    """Written last and at once: with it the environment counts as whole. Development includes running."""
    for each in {name, "ready"}:
        fresh = environment / f"{each}.new"
        fresh.write_text(f"{stamp}\n", "utf-8")
        fresh.replace(environment / each)


def point_editors(link: Path, environment: Path) -> None:
    """`.venv` leads editors to the environment made last; a folder that someone made there is left alone."""
    if link.exists() and not link.is_symlink():
        return
    fresh = link.with_name(".venv.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(Path(".venvs") / environment.name)
    fresh.replace(link)


def explain(failure: StepFailed, log: Path) -> int:
    say(f"\nThe set-up failed. {failure}")
    if log.exists():
        lines = tail(log)
        say("\n".join(["Last lines of the log:", *(f"  | {line}" for line in lines)]) if lines else "")
        say(f"The whole log: {log}")
    say(f"What to do: {failure.hint}")
    return COULD_NOT_START


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
