"""A pretended machine for the set-up scripts: only chosen tools on PATH, no network, no real compiler or pip.

Owns the stand-ins. What is real: ./vivace, ./check and everything in setup/. What is not: the Python that is
found (it hands over to this one), the virtual environment, and the pip inside it, which a short script plays.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests import REPOSITORY

COPIED = ("vivace", "check", "setup", "pyproject.toml", "constraints.txt", "src/vivace/__init__.py")
HANG_S = 120.0  # for what never comes
WARM_TOOLS = ("uname", "cksum")
COLD_TOOLS = (*WARM_TOOLS, "readlink", "dirname", "cat", "cp", "mkdir", "touch", "sleep", "date")

FOUND_PYTHON = """#!/bin/sh
case "$*" in
    *install.py*) exec "{python}" "{fake}/install_here.py" "$@" ;;
    *) printf '%b' '{answer}' ;;
esac
"""

# Runs the real setup/install.py, but lets a script make the virtual environment.
INSTALL_HERE = """
import sys
from pathlib import Path
script = next(word for word in sys.argv if word.endswith("install.py"))
sys.argv = sys.argv[sys.argv.index(script):]
sys.path.insert(0, str(Path(script).parent))
import install

install.own_python = lambda: {maker!r}
sys.exit(install.main())
"""

VENV_MAKER = """#!/bin/sh
for environment; do :; done
mkdir -p "$environment/bin" "$environment/lib/python3.12/site-packages"
cp "{fake}/environment_python" "$environment/bin/python"
"""

# Plays the environment's Python: pip, the smoke test, Vivace itself. A file `fail-WORD` makes a call fail,
# `fail-WORD-once` the first one.
ENVIRONMENT_PYTHON = """#!/bin/sh
fake="{fake}"
printf '%s\\n' "$*" >>"$fake/calls"
case "$*" in
    *" pip "*" download "*) word=download ;;
    *" pip "*" wheel "*) word=wheel ;;
    *" pip "*" install "*) word=install ;;
    *smoke.py*) word=smoke ;;
    *vivace.models.prefetch*) word=prefetch ;;
    */bin/vivace*) word=program ;;
    *ruff*format*) word=format ;;
    *mypy) word=types ;;
    *version_info*) word=version ;;
    *"-m pytest"*) word=tests ;;
    *) word=other ;;
esac
[ ! -e "$fake/slow-$word" ] || touch "$fake/in-$word"
tenths=300
while [ -e "$fake/slow-$word" ] && [ $((tenths -= 1)) -gt 0 ]; do sleep 0.1; done
[ ! -e "$fake/fail-$word" ] || {{ cat "$fake/fail-$word"; exit 1; }}
once="$fake/fail-$word-once"
[ ! -e "$once" ] || {{ cat "$once"; mv "$once" "$fake/failed"; exit 1; }}
case $word in
    download) while [ "$1" != --dest ]; do shift; done; mkdir -p "$2"; cp "$fake/source.tar.gz" "$2" ;;
    wheel)
        while [ "$1" != --wheel-dir ]; do shift; done
        mkdir -p "$2"
        printf '[1/2] cc\\n[2/2] cc\\n%s\\n' "$CMAKE_ARGS"
        cp "$fake/llama_cpp_python-0-py3-none-any.whl" "$2"
        ;;
    prefetch) printf '50%%\\n' ;;
    program) shift; printf '<%s>' "$@"; printf '\\n' ;;
esac
"""


class FakeMachine:
    """A home, a PATH and a clone; `start` runs one of its scripts."""

    def __init__(self, folder: Path) -> None:
        self.fake = folder / "fake"
        self.bin = folder / "bin"
        self.home = folder / "home with spaces"
        for path in (self.fake, self.bin, self.home):
            path.mkdir()
        self.put_tools(*COLD_TOOLS, "mv")
        self.put_found_python()
        self.put_script(self.bin / "c++", "#!/bin/sh\ncat >/dev/null\n")
        self.put_script(self.bin / "cc", "#!/bin/sh\n")
        self._put_stand_ins()
        self.cpuinfo = folder / "cpuinfo"
        self.set_cpu("fpu sse2 avx2")
        self.clone = self.make_clone(folder / "a clone with spaces")

    def _put_stand_ins(self) -> None:
        maker = self.fake / "venv_maker"
        self.put_script(maker, VENV_MAKER.format(fake=self.fake))
        self.put_script(self.fake / "environment_python", ENVIRONMENT_PYTHON.format(fake=self.fake))
        (self.fake / "install_here.py").write_text(INSTALL_HERE.format(maker=str(maker)))
        with zipfile.ZipFile(self.fake / "llama_cpp_python-0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("llama_cpp/lib/libllama.so", "")
        with tarfile.open(self.fake / "source.tar.gz", "w:gz") as archive:
            member = tarfile.TarInfo("llama_cpp_python-0/CMakeLists.txt")
            archive.addfile(member, io.BytesIO())

    def put_tools(self, *names: str) -> None:
        for name in names:
            (self.bin / name).symlink_to(shutil.which(name) or f"/missing/{name}")

    def put_script(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def put_found_python(self, name: str = "python3.12", answer: str = "3.12\\nfits\\n") -> None:
        """Put a Python on PATH that answers the question whether it fits like this."""
        text = FOUND_PYTHON.format(python=sys.executable, fake=self.fake, answer=answer)
        self.put_script(self.bin / name, text)

    def keep_only(self, *names: str) -> None:
        for path in self.bin.iterdir():
            if path.name not in names:
                path.unlink()

    def set_cpu(self, features: str) -> None:
        self.cpuinfo.write_text(f"processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: {features}\nbugs\t:\n")

    def make_clone(self, folder: Path) -> Path:
        for name in COPIED:
            source, target = REPOSITORY / name, folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        return folder

    def begin(
        self, *arguments: str, script: str | Path = "vivace", **places: Path
    ) -> "subprocess.Popen[str]":
        """Start without waiting, in a group of its own so that a test can press Ctrl-C."""
        environ = {"PATH": str(self.bin), "HOME": str(self.home), "VIVACE_CPUINFO": str(self.cpuinfo)}
        return subprocess.Popen(
            [str(self.clone / script), *arguments],
            env=environ,
            cwd=places.get("cwd", self.home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(
        self, *arguments: str, script: str | Path = "vivace", **places: Path
    ) -> "subprocess.CompletedProcess[str]":
        process = self.begin(*arguments, script=script, **places)
        output, errors = process.communicate(timeout=HANG_S)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def press_ctrl_c(self, process: "subprocess.Popen[str]") -> None:
        os.killpg(process.pid, signal.SIGINT)

    def calls(self, word: str) -> list[str]:
        """What was asked of the environment's Python, by a word in it."""
        path = self.fake / "calls"
        return [line for line in path.read_text().splitlines() if word in line] if path.exists() else []

    def environments(self) -> list[Path]:
        return sorted(path for path in (self.clone / ".venvs").glob("*") if path.is_dir())

    def hold(self, word: str) -> None:
        """Let that call not end before `let_go`; `wait_for` waits until it has begun."""
        (self.fake / f"slow-{word}").touch()

    def let_go(self, word: str) -> None:
        (self.fake / f"slow-{word}").unlink()

    def wait_for(self, word: str) -> None:
        name = f"in-{word}"
        wait_until(lambda: (self.fake / name).exists())


def wait_until(condition: Callable[[], bool], seconds: float = HANG_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
