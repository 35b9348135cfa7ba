"""The answer made fit for its place."""

from pathlib import Path

import pytest

from vivace.agent.edits.apply.source import SourceFile, source_from_bytes, splice
from vivace.agent.edits.check.tidy import tidy
from vivace.agent.edits.find.languages import PYTHON, language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit, file_unit, find_unit, lines_unit, new_unit_after

TASKS = """class Task:
    def done(self):
        return self.x

    def open(self):
        return not self.x


def main():
    Task().done()


if __name__ == "__main__":
    main()
"""


def opened(name: str, text: str) -> SourceFile:
    return source_from_bytes(Path(name), text.encode())


def unit_of(source: SourceFile, name: str) -> Unit:
    return find_unit(list_units(source, language_for(source.path)), name)


def tidied(name: str, text: str, unit_name: str, answer: str) -> str:
    source = opened(name, text)
    return tidy(source, language_for(source.path), unit_of(source, unit_name), answer)


DONE = "    def done(self):\n        return 1\n"


@pytest.mark.parametrize(
    "answer",
    [
        DONE,
        "def done(self):\n    return 1\n",
        "    def done(self):\n    return 1\n",
        "        def done(self):\n            return 1\n",
        DONE + "\n\n```\n",
        "```python\n" + DONE + "```",
        "\n\n" + DONE + "\n\n",
        DONE.replace("\n", "\r\n"),
    ],
)
def test_method_lands_at_its_indentation(answer: str) -> None:
    """A method written at another column, or with fences and blank lines around it, is put right."""
    assert tidied("a.py", TASKS, "done", answer) == DONE


def test_statements_of_several_parts_bring_no_definitions() -> None:
    """The top of a file gets its constant; the function that came along is for another part, or for none."""
    source = source_from_bytes(Path("rows.py"), b'"""Rows."""\n\n\ndef read():\n    return 1\n')
    answer = '"""Rows."""\nLOG = []\n\ndef extra():\n    return LOG\n'
    top = lines_unit(source, 1, 1)
    assert tidy(source, PYTHON, top, answer, may_add=False) == '"""Rows."""\nLOG = []\n'
    assert "extra" in tidy(source, PYTHON, top, answer)


def test_longer_declaration_is_not_mistaken_for_a_body() -> None:
    """A signature that now takes several lines stays where it is, and so does a helper below the method."""
    declaration = "    def done(\n        self,\n    ) -> int:\n"
    answer = declaration + "        return 1\n\n    def fresh(self):\n        pass\n"
    assert tidied("a.py", TASKS, "done", answer) == answer


def test_braces_closed_at_column_0_are_moved() -> None:
    """A body written as if its method stood at the left margin moves under the opening."""
    text = "class A {\n  get() {\n    return 1;\n  }\n}\n"
    assert tidied("a.js", text, "get", "  get() {\n  return 2;\n}\n") == "  get() {\n    return 2;\n  }\n"


def test_tabs_stay_tabs() -> None:
    """Where the unit is indented by tabs, so is the answer."""
    text = "func a() {\n\tif x {\n\t\ty()\n\t}\n}\n"
    answer = "func a() {\n    if x {\n        z()\n    }\n}\n"
    assert tidied("a.go", text, "a", answer) == text.replace("y()", "z()")


def test_definitions_the_file_has_are_dropped() -> None:
    """When the model goes on copying the file, only the unit is kept."""
    answer = DONE + TASKS[TASKS.index("\n    def open") :]
    assert tidied("a.py", TASKS, "done", answer) == DONE


def test_context_before_the_unit_is_dropped() -> None:
    """Definitions copied from above the unit are dropped too."""
    answer = "    def done(self):\n        return self.x\n\n    def open(self):\n        return 2\n"
    assert tidied("a.py", TASKS, "open", answer) == "    def open(self):\n        return 2\n"


def test_new_helper_is_kept() -> None:
    """A definition that the file does not have yet stays with the unit."""
    answer = "def main():\n    helper()\n\n\ndef helper():\n    pass\n"
    assert tidied("a.py", TASKS, "main", answer) == answer


def test_helper_behind_a_copy_is_kept() -> None:
    """Copies between the unit and its new helper are dropped, the helper stays."""
    answer = DONE + "\n    def open(self):\n        return 0\n\n    def fresh(self):\n        pass\n"
    assert tidied("a.py", TASKS, "done", answer) == DONE + "\n    def fresh(self):\n        pass\n"


def test_second_copy_of_the_unit_is_dropped() -> None:
    """A model that writes the unit twice has its first one taken."""
    assert tidied("a.py", TASKS, "done", DONE + "\n" + DONE) == DONE


def test_repeated_statements_below_are_dropped() -> None:
    """Statements that already stand below the unit are not added again; new ones are kept."""
    body = "def main():\n    pass\n"
    assert tidied("a.py", TASKS, "main", body + '\n\nif __name__ == "__main__":\n    main()\n') == body
    assert tidied("a.py", TASKS, "main", body + "\n\nregister(main)\n") == body + "\n\nregister(main)\n"


def test_brace_of_the_class_is_dropped() -> None:
    """A method after which the model closes the class as well does not close it twice."""
    text = "class A {\n  void a() {\n    x();\n  }\n}\n"
    answer = "  void a() {\n    y();\n  }\n}\n"
    assert tidied("A.java", text, "a", answer) == "  void a() {\n    y();\n  }\n"


def test_java_overload_is_not_a_copy() -> None:
    """Where names may be shared, a new overload beside the unit is kept."""
    text = "class A {\n  void a(int x) {\n  }\n\n  void b() {\n  }\n}\n"
    answer = "  void a(int x) {\n  }\n\n  void b(int y) {\n  }\n"
    assert tidied("A.java", text, "a", answer) == answer


def test_blank_edges_of_lines_are_kept() -> None:
    """A range that ends in a blank line still ends in it."""
    source = opened("a.txt", "a\n\nb\n")
    assert tidy(source, None, lines_unit(source, 1, 2), "c") == "c\n\n"


def test_markdown_keeps_its_fences() -> None:
    """A text that has fences itself does not lose its last one."""
    source = opened("a.md", "# A\n\n```sh\nls\n```\n")
    answer = "# B\n\n```sh\nls -l\n```\n"
    assert tidy(source, None, file_unit(source), answer) == answer


def test_markdown_loses_a_fence_left_over_at_its_end() -> None:
    """A model that closes our longer fence with a short one leaves it in the text: it is dropped."""
    source = opened("a.md", "# A\n\n```sh\nls\n```\n\nEnd.\n")
    answer = "# B\n\n```sh\nls -l\n```\n\nEnd.\n"
    assert tidy(source, None, file_unit(source), answer + "```\n") == answer


def inserted(name: str, text: str, after: str, answer: str) -> str:
    source = opened(name, text)
    unit = new_unit_after(unit_of(source, after))
    tidy_text = tidy(source, language_for(source.path), unit, answer)
    return splice(source, unit.first_line, unit.last_line, tidy_text).decode()


def test_new_unit_gets_room() -> None:
    """Something new stands between as many blank lines as its neighbours."""
    text = "def a():\n    pass\n\n\ndef b():\n    pass\n"
    fresh = "def c():\n    pass\n"
    assert (
        inserted("a.py", text, "a", fresh)
        == "def a():\n    pass\n\n\n" + fresh + text[text.index("\n\n\ndef b") + 1 :]
    )
    assert inserted("a.py", text, "b", fresh) == text + "\n\n" + fresh


def test_new_method_before_the_closing_brace() -> None:
    """A new last method has one blank line above it and none before the class ends."""
    text = "class A {\n  a() {\n  }\n}\n"
    assert inserted("a.js", text, "a", "b() {\n}\n") == "class A {\n  a() {\n  }\n\n  b() {\n  }\n}\n"


def test_new_python_setter_is_not_a_copy() -> None:
    """A setter may share its getter's name."""
    text = "class A:\n    @property\n    def x(self):\n        return 1\n"
    setter = "    @x.setter\n    def x(self, value):\n        pass\n"
    assert inserted("a.py", text, "x", setter) == text + "\n" + setter


def test_empty_answer_stays_empty() -> None:
    """Nothing but blank lines is nothing."""
    assert tidied("a.py", TASKS, "done", "\n  \n") == ""
