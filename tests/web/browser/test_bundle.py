"""The browser app as it ships: made from the sources here, small, with nothing from outside."""

import gzip
import hashlib
import json
import re

from tests import REPOSITORY

SOURCES = REPOSITORY / "web"
STATIC = REPOSITORY / "src" / "vivace" / "web" / "static"
MOST_BYTES = 300_000  # of all files, gzipped


def test_the_bundle_is_made_from_these_sources() -> None:
    """The hash in the manifest is that of the sources, the lockfile and the build script."""
    files = [path for path in (SOURCES / "src").rglob("*") if path.is_file()]
    files += [SOURCES / "package-lock.json", SOURCES / "build.mjs"]
    hashed = hashlib.sha256()
    for name, path in sorted((path.relative_to(SOURCES).as_posix(), path) for path in files):
        hashed.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    manifest = json.loads((STATIC / "manifest.json").read_text())
    assert manifest["sources"] == hashed.hexdigest(), "stale: run `npm ci && npm run build` in web/"


def test_the_app_is_small() -> None:
    """Everything that a browser loads has less than 300 KB when it is gzipped."""
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in STATIC.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < MOST_BYTES, sizes


def test_the_page_has_no_inline_code_and_no_absolute_path() -> None:
    """The page works under `default-src 'self'` and below any folder."""
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=|<style|\sstyle=", page)
    assert not re.search(r"""(src|href)=["'](/|[a-z]+:)""", page)


def test_the_code_never_makes_elements_from_text() -> None:
    """No source of ours parses HTML or evaluates code."""
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write|eval\(|new Function"
    )
    for path in (SOURCES / "src").rglob("*.js"):
        assert not forbidden.search(path.read_text()), path
