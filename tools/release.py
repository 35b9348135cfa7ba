"""Make a release: `.venv/bin/python tools/release.py 0.2.0` shows what would be done, `--do` does it.

Sets the version in src/vivace/__init__.py, gives the "Unreleased" part of CHANGELOG.md that version and the
date, commits both and tags the commit. Refuses a tree with changes, a version that is not a step up, and a
changelog without news. Does not push, build or upload.
"""

import argparse
import difflib
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = ROOT / "src" / "vivace" / "__init__.py"
CHANGELOG = ROOT / "CHANGELOG.md"
UNRELEASED = "## Unreleased\n"


class Refused(Exception):
    """Why there is no release; the message is for a person."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Make a release.")
    parser.add_argument("version", help="such as 0.2.0")
    parser.add_argument("--do", action="store_true", help="do it; without this it is only shown")
    given = parser.parse_args(arguments)
    try:
        changes = plan(given.version, datetime.now(UTC).strftime("%Y-%m-%d"))
    except Refused as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path, new in changes.items():
        show(path, new)
    if not given.do:
        print(f"\nNothing was changed. Do it with: tools/release.py {given.version} --do")
        return 0
    for path, new in changes.items():
        path.write_text(new, "utf-8")
    tag = f"v{given.version}"
    git("add", *map(str, changes))
    git("commit", "--quiet", "--message", f"Release {given.version}")
    git("tag", "--annotate", "--message", f"Vivace {given.version}", tag)
    print(f"\nCommitted and tagged {tag}. Publish it with: git push --follow-tags")
    return 0


def plan(version: str, date: str) -> dict[Path, str]:
    """Return the new text of each file that a release changes."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise Refused(f"{version!r} is no version. Write three numbers, such as 0.2.0.")
    if git("status", "--porcelain"):
        raise Refused("There are changes that are not committed. Commit or stash them first.")
    if git("tag", "--list", f"v{version}"):
        raise Refused(f"There is a tag v{version} already.")
    source = VERSION_FILE.read_text("utf-8")
    found = re.search(r'^__version__ = "([\d.]+)"$', source, re.MULTILINE)
    assert found, f"{VERSION_FILE} has no version"
    if numbers(version) <= numbers(found[1]):
        raise Refused(f"{version} is not above {found[1]}, the version now.")
    return {
        VERSION_FILE: source.replace(found[0], f'__version__ = "{version}"'),
        CHANGELOG: dated(CHANGELOG.read_text("utf-8"), version, date),
    }


def dated(changelog: str, version: str, date: str) -> str:
    """Return the changelog with its unreleased part under a version, and an empty one above it."""
    before, heading, after = changelog.partition(UNRELEASED)
    if not heading:
        raise Refused(f"{CHANGELOG.name} has no heading {UNRELEASED.strip()!r}.")
    news, next_heading, rest = after.partition("\n## ")
    if not news.strip():
        raise Refused(f"{CHANGELOG.name} tells of nothing new.")
    return f"{before}{UNRELEASED}\n## {version} ({date})\n{news}{next_heading}{rest}"


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def show(path: Path, new: str) -> None:
    old = path.read_text("utf-8")
    name = str(path.relative_to(ROOT))
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), name, name, n=1
    )
    sys.stdout.writelines(lines)


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
