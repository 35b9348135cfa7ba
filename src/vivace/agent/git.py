"""Git, started so that a repository that nobody has read cannot make it run anything, or lead it elsewhere.

Owns the only start of Git, its options and its environment, and what may be believed of its answers. Programs
that a repository can name are of two kinds: those whose setting has a fixed name are turned off by it, and
those with a name of their own (filters, drivers, hooks, helpers) are looked up first and turned off one by
one. No protocol is allowed, so nothing is fetched. Does not own what the answers are for.
"""

import os
import re
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from vivace.programs import find_program, safe_path

LIMIT_S = 60.0
# Options on the command line win over every configuration file, and are handed on to Git's own children.
_FIXED = {
    "core.alternateRefsCommand": "",
    "core.askPass": "",
    "core.editor": "false",
    "core.fsmonitor": "false",  # else the name of a program that Git runs to list changes
    "core.gitProxy": "",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.sshCommand": "false",
    "credential.helper": "",
    "diff.external": "",
    "diff.ignoreSubmodules": "all",
    "fetch.bundleURI": "",
    "gc.auto": "0",
    "gpg.program": "false",
    "interactive.diffFilter": "",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "safe.bareRepository": "explicit",  # a folder of the work tree that looks like `.git` is none
    "sequence.editor": "false",
    "submodule.recurse": "false",
}
# The last part of settings SECTION.NAME.KEY that name a program, or turn one on.
_PROGRAMS = {
    **dict.fromkeys(("clean", "smudge", "process"), ""),  # filter
    **dict.fromkeys(("command", "textconv", "driver", "cmd", "event"), ""),  # diff, merge, trailer, hook
    **dict.fromkeys(("helper", "program", "proxy", "uploadpack", "receivepack", "vcs"), ""),
    **dict.fromkeys(("required", "promisor", "enabled"), "false"),
    "ignore": "all",  # submodule
}
# What names the user's own configuration stays. Any other variable of Git's may lead it to another
# repository, or to a program: some are set where we are a child of Git's, in a hook.
_KEPT = (
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES"),
    *("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"),
)
_ODD = re.compile(r"//|/\.{1,2}/|/\.git/", re.IGNORECASE)
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "",  # none, whatever the repository's own `protocol.NAME.allow` says
    "GIT_ASKPASS": "false",
    "GIT_NO_LAZY_FETCH": "1",  # since 2.39.4; before, such a fetch ends at the protocol
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def run_git(
    folder: Path, *arguments: str, limit_s: float = LIMIT_S, origin: Path | None = None
) -> bytes | None:
    """Return what Git says of a folder, or None: there is no Git, it fails, or takes too long.

    A repository whose settings cannot all be turned off is one of those at which it fails. `origin` is the
    folder that this one is a copy of: no program is taken from there either.
    """
    worked_on = (folder, origin or folder)
    if not (program := find_program("git", *worked_on)):
        return None
    start = [program, "--no-pager", "-C", str(folder), *_options(_FIXED)]
    environment = _environment(os.environ) | {"PATH": safe_path(*worked_on)}
    settings = _said([*start, "config", "--list", "--name-only", "-z"], environment, limit_s)
    if settings is None or (found := _named_programs(settings)) is None:
        return None
    return _said([*start, *_options(found), *arguments], environment, limit_s)


def git_files(folder: Path, limit_s: float = LIMIT_S) -> list[str] | None:
    """Return what Git knows or would add below a folder, or None. A name that ends in `/` is a repository.

    An index is data of whoever made it: no path leads out of the folder, into `.git`, or through a link.
    """
    listed = run_git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", limit_s=limit_s)
    if listed is None:
        return None
    names = dict.fromkeys(os.fsdecode(name) for name in listed.split(b"\0") if name)
    links: dict[str, bool] = {"": False}
    return [name for name in names if not (_leads_out(name) or _is_below_link(str(folder), name, links))]


def _options(settings: Mapping[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    is_kept = {name: not name.startswith("GIT_") or name.startswith(_KEPT) for name in environ}
    return {name: value for name, value in environ.items() if is_kept[name]} | _VARIABLES


def _named_programs(listed: bytes) -> dict[str, str] | None:
    """Return what turns off each program with a name of its own; None if that cannot be written."""
    found: dict[str, str] = {}
    for name in map(os.fsdecode, listed.split(b"\0")):
        section, _, rest = name.partition(".")
        own, _, key = rest.rpartition(".")
        if not section or not own or key not in _PROGRAMS:
            continue
        if "=" in own or "\n" in own:  # it would be read as another setting
            return None
        found[name] = _PROGRAMS[key]
    return found


def _said(command: list[str], environment: Mapping[str, str], limit_s: float) -> bytes | None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            env=environment,
            start_new_session=True,  # no terminal to ask at
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _leads_out(name: str) -> bool:
    """Return whether a path is absolute, or has a part that is empty, leads up, or is Git's own folder."""
    parts = f"/{name.removesuffix('/')}/"
    return ("/." in parts or "//" in parts) and _ODD.search(parts) is not None


def _is_below_link(folder: str, name: str, links: dict[str, bool]) -> bool:
    """Return whether a folder on the way to a file is a link. `links` remembers those seen."""
    above = name.removesuffix("/").rpartition("/")[0]
    if above not in links:
        links[above] = _is_below_link(folder, above, links) or _is_link(f"{folder}/{above}")
    return links[above]


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:  # it is gone: so are its files
        return False
