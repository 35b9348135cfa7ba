"""The command line of bubblewrap: what a sandboxed program can see, and why there may be no sandbox here.

Owns the walls. Inside there is no network, no home and no other process. The system's programs can be read;
a private folder, `/tmp` and `/dev/shm` can be written, and are in memory. Does not run anything (`run`).
"""

import functools
import os
import py_compile
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from vivace.errors import SandboxUnavailable
from vivace.programs import find_program

FOLDER = "/sandbox"  # the private folder, as the program sees it; also its home, and where it starts
LIMITED = Path(__file__).with_name("limited.py")
LIMITED_INSIDE = "/limited.pyc"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": FOLDER,
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",  # or else numpy reserves memory for every core
    "OMP_NUM_THREADS": "1",
}
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
NOBODY = "65534"
CHANGED = "changed while the sandbox was built."  # what `limited` says of a mount that shows another thing
INSTALL = (
    "Install it: `apt install bubblewrap`, `dnf install bubblewrap`, `pacman -S bubblewrap`, "
    "`apk add bubblewrap` or `zypper install bubblewrap`."
)
# What can forbid user namespaces: the setting, the value that forbids, and what to do.
FORBIDDING = (
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "Allow them: `sudo sysctl user.max_user_namespaces=10000`.",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "Allow them: `sudo sysctl kernel.unprivileged_userns_clone=1`.",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "Give bwrap an AppArmor profile that allows `userns`, or allow them for all: "
        "`sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`.",
    ),
)


def find_bubblewrap(*folders: Path) -> str:
    """Return the path of bubblewrap, which is in none of these folders, or raise why there is none."""
    if sys.platform != "linux":
        raise SandboxUnavailable(
            "Programs can be sandboxed on Linux only: the sandbox is made by bubblewrap.",
            "Do this step on a Linux machine. Nothing was run.",
        )
    if not (path := find_program("bwrap", *folders)):
        raise SandboxUnavailable("The sandbox needs bubblewrap (`bwrap`), and nothing was run.", INSTALL)
    return path


def sandbox_command(
    bubblewrap: str,
    read_only: Iterable[Path],
    files: dict[str, int],
    folder_bytes: int,
    *,
    limited: int,
    mounts: Sequence[str] = (),
    starts_in: str = FOLDER,
    seccomp: int | None = None,
) -> list[str]:
    """Return the command line up to the program.

    `files` are descriptors, by their name in the folder; `limited` is that of the first program. `mounts` are
    further options, for folders of the user's. `seccomp` is a descriptor with the filter of system calls.
    """
    command = [bubblewrap, "--unshare-user", "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--cap-drop", "ALL", "--uid", NOBODY, "--gid", NOBODY, "--hostname", "sandbox"]
    for name in SYSTEM:
        command += _seen(Path(name))
    command += ["--file", str(limited), LIMITED_INSIDE, "--proc", "/proc", "--dev", "/dev"]
    for name in (FOLDER, "/tmp", "/dev/shm"):
        command += ["--size", str(folder_bytes), "--tmpfs", name]
    command += mounts  # after /tmp, where one of them may be
    for path in read_only:  # after the mounts, where one of them may be
        command += ["--ro-bind", str(path), str(path)]
    for name, descriptor in files.items():
        command += ["--file", str(descriptor), f"{FOLDER}/{name}"]
    if seccomp is not None:
        command += ["--seccomp", str(seccomp)]
    closed = [part for path in ("/proc", "/dev", "/") for part in ("--remount-ro", path)]
    return [*command, *closed, "--chdir", starts_in, "--"]


@functools.cache
def limited_code() -> bytes:
    """Return the first program, compiled once: to compile it for each command takes a tenth of the start."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = py_compile.compile(str(LIMITED), f"{folder}/limited.pyc", LIMITED_INSIDE, doraise=True)
        return Path(compiled or "").read_bytes()


def python_folders() -> tuple[Path, ...]:
    """Return the folders that this Python and its packages need, beyond the system's own."""
    needed = {Path(each) for each in (sys.prefix, sys.base_prefix, sys.base_exec_prefix)}
    return tuple(sorted(path for path in needed if not path.is_relative_to("/usr")))


def unavailable(said: str) -> SandboxUnavailable:
    """Return why bubblewrap could not build the sandbox, from what it said and what the kernel forbids."""
    said = said.strip().removeprefix("bwrap: ") or "no reason given"
    if said.endswith(CHANGED):
        return SandboxUnavailable(f"Nothing was run: {said}", "Another program changes it. Try again.")
    if "namespace" in said or "uid map" in said or "not permitted" in said:
        for setting, value, advice in FORBIDDING:
            if _read(setting) == value:
                why = f"this machine does not allow unprivileged user namespaces ({setting} is {value})"
                return SandboxUnavailable(f"There is no sandbox, and nothing was run: {why}.", advice)
    return SandboxUnavailable(
        f"bubblewrap could not build the sandbox, and nothing was run: {said}",
        "In a container, user namespaces and a mount of /proc must be allowed; `bwrap --unshare-all "
        "--ro-bind / / --proc /proc true` shows whether they are.",
    )


def _seen(path: Path) -> list[str]:
    """Return how a path of the system is shown: a link as a link, what is not there not at all."""
    if path.is_symlink():
        return ["--symlink", os.readlink(path), str(path)]  # noqa: PTH115
    return ["--ro-bind", str(path), str(path)] if path.exists() else []


def _read(setting: str) -> str:
    try:
        return Path(setting).read_text("ascii").strip()
    except OSError:
        return ""
