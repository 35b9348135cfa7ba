"""What may be written, and what must not."""

from pathlib import Path

import pytest

from vivace.agent.edits.apply.source import source_from_bytes, splice
from vivace.agent.edits.check.verify import verify
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import file_unit, find_unit, new_unit_after

CLASS = """class Task:
    def done(self):
        return self.x

    def open(self):
        return not self.x


def main():
    return 1
"""


def problems(
    name: str, text: str, unit_name: str | None, answer: str, instruction: str = "improve it"
) -> str:
    source = source_from_bytes(Path(name), text.encode())
    language = language_for(source.path)
    unit = find_unit(list_units(source, language), unit_name) if unit_name else file_unit(source)
    new = splice(source, unit.first_line, unit.last_line, answer)
    return " | ".join(verify(source, language, unit, new, instruction))


def test_good_edit_has_no_problems() -> None:
    """A rewrite that parses and keeps its names is good."""
    assert problems("a.py", CLASS, "main", "def main(x: int) -> int:\n    return x\n") == ""


@pytest.mark.parametrize(
    ("name", "text", "unit", "answer"),
    [
        ("a.py", "def f():\n    pass\n", "f", "def f(:\n    pass\n"),
        ("a.ts", "function f() {\n}\n", "f", "function f() {\n"),
        ("a.go", "package a\n\nfunc f() {\n}\n", "f", "func f() {\n\tif {\n}\n"),
        ("a.rs", "fn f() {\n}\n", "f", "fn f() {\n    let = ;\n}\n"),
        ("a.c", "int f() {\n}\n", "f", "int f() {\n  return (1;\n}\n"),
        ("a.cpp", "int f() {\n}\n", "f", "int f( {\n}\n"),
        ("A.java", "class A {\n}\n", "A", "class A {\n  void (\n}\n"),
        ("a.sh", "f() {\n  x\n}\n", "f", "f() {\n  if x; then\n}\n"),
        ("a.json", '{"a": 1}\n', None, '{"a": 1,}\n'),
        ("a.toml", "a = 1\n", None, "a = \n"),
    ],
)
def test_broken_syntax_is_seen(name: str, text: str, unit: str | None, answer: str) -> None:
    """An answer that breaks the file's syntax is a problem in every language."""
    assert problems(name, text, unit, answer) != ""


def test_compiler_sees_more_than_the_grammar() -> None:
    """Python that parses but does not compile is a problem."""
    assert "outside" in problems("a.py", "def f():\n    return 1\n", "f", "def f(): pass\nreturn 1\n")


def test_old_errors_do_not_count() -> None:
    """In a file that was broken elsewhere an edit may be made, as long as it breaks nothing more."""
    broken = "def bad(:\n    pass\n\ndef f():\n    return 1\n"
    assert problems("a.py", broken, "f", "def f():\n    return 2\n") == ""
    assert problems("a.py", broken, "f", "def f(:\n    return (\n") != ""


def test_invalid_data_may_stay_invalid() -> None:
    """A JSON file with comments, which strict JSON forbids, can still be edited."""
    assert problems("a.json", "// c\n{}\n", None, "// d\n{}\n") == ""


def test_warnings_of_the_compiler_are_no_problems() -> None:
    """An invalid escape, which only warns, is accepted."""
    assert problems("a.py", "def f():\n    pass\n", "f", 'def f():\n    return "\\d"\n') == ""


def test_renaming_unasked_is_a_problem() -> None:
    """The unit keeps its name, unless the instruction renames it or says the new name."""
    answer = "def run():\n    return 1\n"
    assert "now called run" in problems("a.py", CLASS, "main", answer)
    assert problems("a.py", CLASS, "main", answer, "rename it") == ""
    assert problems("a.py", CLASS, "main", answer, "make this `run`") == ""
    assert problems("a.py", CLASS, "main", answer, "make it return faster, rundown") != ""


def test_lost_methods_are_a_problem() -> None:
    """A class keeps its methods, unless the instruction takes some away."""
    answer = "class Task:\n    def done(self):\n        return True\n"
    assert "lost open" in problems("a.py", CLASS, "Task", answer, "done returns True")
    assert problems("a.py", CLASS, "Task", answer, "delete open()") == ""


def test_lost_functions_of_a_file_are_a_problem() -> None:
    """So does a file keep its functions."""
    assert "lost" in problems("a.py", CLASS, None, "def main():\n    return 1\n")


def test_one_of_two_overloads_lost_is_a_problem() -> None:
    """Methods that share a name are counted."""
    text = "class A {\n  void a() {\n  }\n  void a(int x) {\n  }\n}\n"
    assert "lost a" in problems("A.java", text, "A", "class A {\n  void a() {\n  }\n}\n")


def test_empty_answer_is_a_problem() -> None:
    """Nothing is written for nothing, unless removal was asked for."""
    assert problems("a.py", CLASS, "main", "") == "The answer is empty."
    assert problems("a.py", CLASS, "main", "", "remove this function") == ""
    assert problems("a.py", CLASS, "main", "", "return None for an empty list") != ""


def test_empty_new_unit_is_a_problem() -> None:
    """Something new must be something."""
    source = source_from_bytes(Path("a.py"), CLASS.encode())
    language = language_for(source.path)
    unit = new_unit_after(list_units(source, language)[-1])
    assert verify(source, language, unit, source.raw, "add a test") == ["The answer is empty."]


@pytest.mark.parametrize(
    "comment",
    [
        "# ... rest of the code",
        "# ... existing code ...",
        "# ...",
        "# rest of the function unchanged",
        "# your code here",
    ],
)
def test_placeholders_are_a_problem(comment: str) -> None:
    """Code left out behind a comment is a problem, unless that comment was there before."""
    answer = f"def main():\n    {comment}\n    return 1\n"
    assert "leaves code out" in problems("a.py", CLASS, "main", answer)
    assert (
        problems("a.py", CLASS.replace("    return 1", f"    {comment}\n    return 1"), "main", answer) == ""
    )


@pytest.mark.parametrize(
    "comment", ["# skip the rest of the file", "# update existing users", "# wait for it ..."]
)
def test_ordinary_comments_are_fine(comment: str) -> None:
    """Comments that merely use such words are not placeholders."""
    assert problems("a.py", CLASS, "main", f"def main():\n    {comment}\n    return 1\n") == ""


def test_result_must_be_text() -> None:
    """A NUL in the answer is a problem, not an exception."""
    assert "text file" in problems("a.txt", "a\n", None, "a\0b\n")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("def main(x):\n    return x\n", "The function main is in the file already, at line 9."),
        ("@overload\ndef main(x):\n    return x\n", ""),
        ("def other(x):\n    return x\n", ""),
    ],
)
def test_something_new_has_a_new_name(answer: str, found: str) -> None:
    """A second definition of a name that the file has would silently take the place of the first."""
    source = source_from_bytes(Path("a.py"), CLASS.encode())
    language = language_for(source.path)
    unit = new_unit_after(list_units(source, language)[-1])
    new = splice(source, unit.first_line, unit.last_line, "\n\n" + answer)
    assert " | ".join(verify(source, language, unit, new, "add it")) == found
