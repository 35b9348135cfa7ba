"""What a server's command line runs of a project is part of what is trusted, whatever program runs it."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from vivace.agent.mcp.servers import PROJECT_FILE as MCP_FILE
from vivace.agent.mcp.servers import McpServer
from vivace.agent.trust.describe import described
from vivace.agent.trust.programs import program_digest, programs_of
from vivace.agent.trust.project import read_project
from vivace.agent.trust.store import TrustStore

FILES = {
    "tools/server.sh": "#!/bin/sh\n. ./tools/lib.sh\nexec node helper.js\n",
    "tools/lib.sh": "true\n",
    "tools/server/__main__.py": "from tools import helping\nfrom . import near\n",
    "tools/server/near.py": "import tools.far.away\n",
    "tools/far/away.py": "",
    "tools/helping.py": "",
    "tools/__init__.py": "",
    "x.js": 'const y = require("./lib/y"); import z from "./lib/z.mjs";\n',
    "lib/y.js": "",
    "lib/z.mjs": "",
    "helper.js": "",
    "Makefile": "serve:\n\t./tools/server.sh\n",
    "package.json": '{"scripts": {"serve": "node helper.js"}}',
    "node_modules/.bin/serve": "#!/bin/sh\n",
    "pyproject.toml": '[project.scripts]\nserve = "tools.helping:main"\n',
    "compose.yaml": "services:\n  a:\n    build: .\n",
    "Dockerfile": "FROM scratch\nCOPY tools/lib.sh /\n",
    "bin/serve-it": "#!/bin/sh\n",
    "unrelated.py": "",
    "data/state.db": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in ("tools/server.sh", "node_modules/.bin/serve", "bin/serve-it"):
        (root / name).chmod(0o755)
    return root


def mcp(root: Path, *command: str, **more: object) -> None:
    server = {"command": command[0], "args": list(command[1:]), **more}
    (root / MCP_FILE).write_text(json.dumps({"mcpServers": {"one": server}}))


SHELL = {"tools/server.sh", "tools/lib.sh", "helper.js"}
MODULE = {"tools/server/__main__.py", "tools/server/near.py", "tools/far/away.py", "tools/helping.py"}
NODE = {"x.js", "lib/y.js", "lib/z.mjs"}


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["sh", "-c", "exec ./tools/server.sh"], SHELL),
        (["/bin/bash", "-c", 'cd tools && FOO=1 exec "./server.sh" | cat'], SHELL),
        (["env", "A=1", "sh", "-lc", "exec $PWD/tools/server.sh"], SHELL),
        (["./tools/server.sh"], SHELL),
        (["node", "--require=./x", "-e", "1"], NODE),
        (["node", "-r./x.js"], NODE),
        (["node", "--import", "./x.js", "helper"], {*NODE, "helper.js"}),
        (["node"], {"package.json"}),
        (["python3", "-m", "tools.server"], MODULE),
        (["python3.11", "-mtools.server"], MODULE),
        (["python3", "-Imtools.server"], MODULE),
        (["git", "-c", "alias.x=!./tools/server.sh", "x"], SHELL),
        (["python3", "tools/server"], MODULE),
        (["python3", "-c", "import tools.helping as h; h.main()"], {"tools/helping.py", "tools/__init__.py"}),
        (["uv", "run", "serve"], {"pyproject.toml", "tools/helping.py"}),
        (["uv", "run", "-m", "tools.server"], {"pyproject.toml", *MODULE}),
        (["make", "serve"], {"Makefile", *SHELL}),
        (["sh", "-c", "make -C . serve"], {"Makefile", *SHELL}),
        (["npm", "run", "serve"], {"package.json", "helper.js"}),
        (["npx", "serve"], {"package.json", "node_modules/.bin/serve"}),
        (["docker", "compose", "run", "a"], {"compose.yaml", "Dockerfile", "tools/lib.sh"}),
    ],
    ids=lambda given: " ".join(sorted(given) if isinstance(given, set) else given),
)
class TestFound:
    def test_what_it_runs_is_found(self, root: Path, command: list[str], found: set[str]) -> None:
        """Named, read by the program itself, or loaded by one of those; and nothing else."""
        programs = programs_of(root, McpServer(command=command[0], args=command[1:]))
        assert found <= programs.files.keys()
        assert not {"unrelated.py", "data/state.db"} & programs.files.keys()
        assert programs.changes, "what no hash can bind is said"

    def test_a_change_of_any_of_it_asks_again(
        self, root: Path, tmp_path: Path, command: list[str], found: set[str]
    ) -> None:
        """And the old content is trusted again."""
        mcp(root, *command)
        store = TrustStore(tmp_path / "state")
        store.trust(read_project(root))
        for name in found:
            (root / name).write_text(f"{FILES[name]}\n")
            assert not store.is_trusted(read_project(root)), name
            (root / name).write_text(FILES[name])
        assert store.is_trusted(read_project(root))


class TestEdges:
    def test_a_program_that_the_environment_leads_to_is_found(self, root: Path) -> None:
        """By the path of programs, and by options in a variable."""
        by_path = McpServer(command="serve-it", env={"PATH": "./bin:/usr/bin"})
        assert programs_of(root, by_path).files.keys() == {"bin/serve-it"}
        by_options = McpServer(
            command="node", env={"NODE_OPTIONS": "--max-old-space-size=64 --require ./x.js"}
        )
        assert programs_of(root, by_options).files.keys() >= NODE

    def test_a_new_file_that_would_be_run_instead_asks_again(self, root: Path, tmp_path: Path) -> None:
        """A module of the project shadows one that was meant."""
        mcp(root, "python3", "-m", "http.server")
        store = TrustStore(tmp_path / "state")
        store.trust(read_project(root))
        (root / "http.py").write_text("evil()")
        assert not store.is_trusted(read_project(root))

    @pytest.mark.parametrize(
        "word",
        [
            "x" * 300,
            "/".join(["x" * 200] * 30),
            "a\0b",
            "\ud800",
            "~/none",
            "$(cat none)",
            "x",
            "/",
            "..",
            ".",
        ],
    )
    def test_words_that_can_be_no_file_are_passed_over(self, root: Path, word: str) -> None:
        """Longer than a name may be, with a NUL, or not to be encoded."""
        assert not programs_of(root, McpServer(command="serve-one", args=[word])).files

    def test_a_loop_of_links_ends(self, root: Path) -> None:
        """As does a file that names itself, and a pipe is never waited for."""
        (root / "loop.js").symlink_to("loop.js")
        (root / "self.js").write_text('require("./self.js")')
        os.mkfifo(root / "pipe.js")
        server = McpServer(command="node", args=["self.js", "loop.js", "pipe.js"])
        assert programs_of(root, server).files.keys() >= {"self.js"}

    def test_large_and_empty_programs_are_told_apart(self, tmp_path: Path) -> None:
        """A program of any size is hashed whole."""
        digests = set()
        for text in (b"", b"x" * (17 << 20), b"x" * (17 << 20) + b"y"):
            (tmp_path / "p").write_bytes(text)
            digests.add(program_digest(tmp_path / "p"))
        assert len(digests) == 3

    def test_a_plain_program_needs_no_more_words(self, root: Path) -> None:
        """One of the system's, with options."""
        programs = programs_of(root, McpServer(command="serve-one", args=["--port", "80", "-v"]))
        assert (programs.files, programs.changes) == ({}, [])

    def test_a_program_that_runs_others_says_so(self, root: Path) -> None:
        """Also where no file of the project can be found in its line."""
        line = McpServer(command="find", args=[".", "-name", "*.sh", "-exec", "{}", ";"])
        assert programs_of(root, line).changes

    def test_the_question_says_what_can_change(self, root: Path) -> None:
        """Beside the files that cannot."""
        mcp(root, "npx", "-y", "@scope/server")
        text = "\n".join(described(read_project(root)))
        assert "what this runs can change without asking again: packages" in text
        assert "a program of the project: package.json" in text


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
@pytest.mark.parametrize(
    ("command", "names"),
    [
        (["sh", "-c", "exec ./tools/server.sh"], ["tools/server.sh", "tools/lib.sh", "helper.js"]),
        (["node", "--require=./x", "-e", "1"], ["x.js", "lib/y.js"]),
        (["python3", "-m", "tools.server"], ["tools/server/__main__.py", "tools/far/away.py"]),
        (["make", "serve"], ["Makefile", "tools/server.sh"]),
        (["npm", "run", "serve"], ["helper.js"]),
    ],
    ids=" ".join,
)
def test_what_the_real_program_opens_is_among_it(root: Path, command: list[str], names: list[str]) -> None:
    """Each real program fails or says so when one of the files that were found is taken away."""
    if not shutil.which(command[0]):
        pytest.skip(f"needs {command[0]}")
    (root / "x.js").write_text('require("./lib/y");\n')

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=60)

    assert run().returncode == 0, run().stderr
    found = programs_of(root, McpServer(command=command[0], args=command[1:])).files
    for name in names:
        assert name in found
        text = (root / name).read_text()
        (root / name).unlink()
        assert run().returncode != 0, name
        (root / name).write_text(text)
        (root / name).chmod(0o755)
