"""Reading `PATH[:NAME | :L1-L2]`."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.find.target import Lines, Target, parse_target
from vivace.errors import UsageError

NAME = st.text(st.characters(categories=("L",)), min_size=1, max_size=8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "path", "selector"),
    [
        ("app.py", "app.py", None),
        ("app.py:main", "app.py", "main"),
        ("app.py:Task.done", "app.py", "Task.done"),
        ("a.cpp:Foo::bar", "a.cpp", "Foo::bar"),
        ("app.py:10-20", "app.py", Lines(10, 20)),
        ("app.py:7", "app.py", Lines(7, 7)),
        ("app.rs:impl Display for Point", "app.rs", "impl Display for Point"),
    ],
)
def test_forms(text: str, path: str, selector: object) -> None:
    """A path alone, with a name, with a line or with a range."""
    assert parse_target(text) == Target(Path(path), selector)  # type: ignore[arg-type]


def test_existing_file_with_colon_wins(tmp_path: Path) -> None:
    """A file whose name holds the colon is meant before a unit of that name."""
    (tmp_path / "a:b").touch()
    (tmp_path / "a").touch()
    assert parse_target(f"{tmp_path}/a:b") == Target(tmp_path / "a:b", None)
    assert parse_target(f"{tmp_path}/a:b:c") == Target(tmp_path / "a:b", "c")
    assert parse_target(f"{tmp_path}/a:c") == Target(tmp_path / "a", "c")


@pytest.mark.parametrize(
    "text", ["", "  ", ":main", "a.py:", "a.py:0", "a.py:5-3", "a.py:5-", "a.py:-5", "a.py:1-2-3"]
)
def test_bad_forms_get_a_hint(text: str) -> None:
    """What cannot be meant is refused with an example of what can."""
    with pytest.raises(UsageError) as error:
        parse_target(text)
    assert error.value.hint


@given(NAME, st.integers(1, 10**8), st.integers(0, 1000))
def test_round_trip(name: str, first: int, more: int) -> None:
    """Whatever was put together is taken apart again."""
    assert parse_target(f"{name}.zz:{name}").selector == name
    assert parse_target(f"{name}.zz:{first}-{first + more}").selector == Lines(first, first + more)


@given(st.text(max_size=30))
def test_never_a_traceback(text: str) -> None:
    """Any text gives a target or a UsageError."""
    with suppress(UsageError):
        assert str(parse_target(text).path)
