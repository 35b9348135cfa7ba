"""Imports that a new piece of Go or JavaScript needs, only where nothing else can be meant."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.edits.repair.imports.test_python import Favourite
from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.languages import GO, TYPESCRIPT, language_for
from vivace.agent.edits.repair.imports.other_languages import edits_for
from vivace.agent.edits.repair.imports.step import add_imports

pytestmark = pytest.mark.unit
OnDisk = Callable[..., SourceFile]

GO_FILE = 'package main\n\nimport (\n\t"fmt"\n\t"os"\n)\n\nfunc f(s string) string {\n\treturn s\n}\n'
ESM = 'import os from "node:os";\n\nexport function f(name) {\n  return name;\n}\n'
COMMON = "const os = require('os')\n\nfunction f(name) {\n  return name\n}\n"


def result(source: SourceFile, new: str) -> str | None:
    found = asyncio.run(add_imports(Favourite(), source, language_for(source.path), new.encode()))
    return found.new_bytes.decode() if found else None


@pytest.mark.parametrize(
    ("name", "old", "change", "line"),
    [
        ("a.go", GO_FILE, ("return s", "return strings.ToUpper(s)"), '\t"os"\n\t"strings"\n)'),
        ("a.go", GO_FILE, ("return s", "return errors.New(s).Error()"), '(\n\t"errors"\n\t"fmt"'),
        ("a.go", GO_FILE, ("return s", "return filepath.Base(s)"), '\t"os"\n\t"path/filepath"\n)'),
        (
            "a.go",
            "package a\n\nfunc f() {}\n",
            ("{}", "{ fmt.Println() }"),
            'package a\n\nimport "fmt"\n\nfunc',
        ),
        ("a.js", ESM, ("return name", "return path.basename(name)"), 'import path from "node:path";\n'),
        ("a.js", COMMON, ("return name", "return fs.readFileSync(name)"), "const fs = require('fs')\n"),
        ("a.ts", ESM, ("return name", "return path.basename(name)"), 'import path from "node:path";\n'),
    ],
)
def test_a_package_of_the_standard_library_is_imported(
    on_disk: OnDisk, name: str, old: str, change: tuple[str, str], line: str
) -> None:
    """A package used as `name.member` is imported as the file writes its other imports."""
    found = result(on_disk(old, name), old.replace(*change))
    assert found is not None
    assert line in found


@pytest.mark.parametrize(
    ("name", "old", "change"),
    [
        ("a.go", GO_FILE, ("return s", "strings := []string{s}; return strings[0]")),
        ("a.go", GO_FILE, ("f(s string) string {", "f(sort T) string {\n\tsort.Go()")),
        ("a.go", GO_FILE, ("return s", "return fmt.Sprint(s)")),
        ("a.js", ESM, ("f(name) {", "f(path) {\n  path.join();")),
        ("a.js", "function f(name) {\n  return name\n}\n", ("return name", "return path.join(name)")),
        ("a.js", ESM, ("return name", "return helper(name)")),
        ("a.rs", "fn f() {}\n", ("{}", "{ fs.read() }")),
    ],
)
def test_what_could_be_something_else_is_left_alone(
    on_disk: OnDisk, name: str, old: str, change: tuple[str, str]
) -> None:
    """A variable of that name, a name that is imported, or one that nobody knows gets no import."""
    assert result(on_disk(old, name), old.replace(*change)) is None


def test_a_name_that_the_repository_has_from_one_package(on_disk: OnDisk, tmp_path: Path) -> None:
    """A called name is imported as another file does it, unless files do not agree."""
    (tmp_path / "b.tsx").write_text("import { useState, useRef } from 'react';\n")
    new = ESM.replace("return name", "return useState(name)")
    source = on_disk(ESM, "a.ts")
    assert 'import { useState } from "react";\n' in (result(source, new) or "")
    (tmp_path / "c.ts").write_text('import { useState } from "preact/hooks";\n')
    assert result(source, new) is None


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_can_be_compared(old: str, new: str) -> None:
    """Whatever the texts, nothing is raised."""
    for language in (GO, TYPESCRIPT):
        for edit in edits_for(Path("/nowhere/a"), language, old, new):
            assert 1 <= edit.first == edit.last + 1
