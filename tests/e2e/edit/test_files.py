"""`vivace edit` and the file: undo, other languages, new units, mode bits and links."""

import stat

import pytest

from tests.e2e.conftest import NEW, TASK
from tests.e2e.terminal import Home


def test_undo_takes_the_last_edit_back(task_home: Home) -> None:
    """undo restores the exact bytes, and refuses once the file has changed since."""
    file = task_home.work / "task.py"
    task_home.run("edit", "task.py", "shout", "--yes")
    done = task_home.run("undo")
    assert (done.code, file.read_text()) == (0, TASK)
    task_home.run("edit", "task.py", "shout", "--yes")
    file.write_text(NEW + "# mine\n")
    refused = task_home.run("undo")
    assert refused.code == 1
    assert file.read_text() == NEW + "# mine\n"


def test_an_undo_is_redone_and_listed(task_home: Home) -> None:
    """redo brings the edit back, --list shows its number, --number and --to take it back."""
    file = task_home.work / "task.py"
    task_home.run("edit", "task.py", "shout", "--yes")
    task_home.run("undo")
    redone = task_home.run("redo")
    assert (redone.code, file.read_text()) == (0, NEW), redone.err
    listed = task_home.run("undo", "--list").out
    assert [line.split()[0] for line in listed.splitlines()] == ["3", "2", "1"]
    assert "shout" in listed
    assert (task_home.run("undo", "--number", "1").code, file.read_text()) == (0, TASK)
    assert (task_home.run("undo", "--to", "3").code, file.read_text()) == (0, NEW)
    assert (task_home.run("undo", "--to", "0").code, file.read_text()) == (0, TASK)
    assert (task_home.run("undo", "--number", "99").code, file.read_text()) == (1, TASK)
    assert task_home.run("undo", "--list", "--to", "1").code == 2


def test_undo_without_an_edit_says_so(home: Home) -> None:
    """Nothing to undo: exit code 1 and one sentence."""
    done = home.run("undo")
    assert (done.code, "Traceback" in done.err) == (1, False)
    assert done.err.startswith("vivace: ")


@pytest.mark.parametrize(
    ("name", "old", "unit", "answer", "new"),
    [
        (
            "a.ts",
            "export function twice(n: number) {\r\n  return n + n;\r\n}\r\n",
            "twice",
            "```typescript\nexport function twice(n: number): number {\n  return 2 * n;\n}\n```",
            "export function twice(n: number): number {\r\n  return 2 * n;\r\n}\r\n",
        ),
        (
            "a.go",
            "package a\n\nfunc Twice(n int) int {\n\treturn n + n\n}",
            "Twice",
            "```go\nfunc Twice(n int) int {\n\treturn 2 * n\n}\n```",
            "package a\n\nfunc Twice(n int) int {\n\treturn 2 * n\n}",
        ),
        (
            "a.rs",
            "/// Doubles.\nfn twice(n: i32) -> i32 {\n    n + n\n}\n",
            "twice",
            "```rust\n/// Doubles.\nfn twice(n: i32) -> i32 {\n    2 * n\n}\n```",
            "/// Doubles.\nfn twice(n: i32) -> i32 {\n    2 * n\n}\n",
        ),
        (
            "a.txt",
            "\ufeffone\ntwo ü\nthree",
            "2",
            "````txt\nTWO Ü\n````",
            "\ufeffone\nTWO Ü\nthree",
        ),
    ],
)
def test_other_languages_are_spliced_byte_exactly(
    home: Home, name: str, old: str, unit: str, answer: str, new: str
) -> None:
    """Line ends, tabs, byte order mark and a missing final newline are kept, in any language."""
    file = home.work / name
    file.write_bytes(old.encode())
    home.script({"Task:": answer})
    done = home.run("edit", f"{name}:{unit}", "make it better", "--yes")
    assert done.code == 0, done.err + done.out
    assert file.read_bytes() == new.encode()


def test_something_new_is_put_after_a_unit(task_home: Home) -> None:
    """An instruction that adds something gets a place of its own, with blank lines as the file has them."""
    added = "```python\ndef count(tasks):\n    return len(tasks)\n```"
    task_home.script({"You locate code": "`new after show`", "Task: add": added})
    done = task_home.run("edit", "task.py", "add a function that counts tasks", "--yes")
    assert done.code == 0, done.err
    assert (task_home.work / "task.py").read_text() == TASK + "\n\ndef count(tasks):\n    return len(tasks)\n"


def test_mode_bits_and_links_survive(task_home: Home) -> None:
    """An executable stays executable, and a symbolic link stays a link to the edited file."""
    file = task_home.work / "task.py"
    file.chmod(0o755)
    link = task_home.work / "link.py"
    link.symlink_to("task.py")
    assert task_home.run("edit", "link.py", "shout", "--yes").code == 0
    assert link.is_symlink()
    assert file.read_text() == NEW
    assert stat.S_IMODE(file.stat().st_mode) == 0o755


def test_a_function_is_moved_into_a_new_file(task_home: Home) -> None:
    """Cut there, put here, imported by who uses it, in one edit that one undo takes back."""
    file, new = task_home.work / "task.py", task_home.work / "views" / "show.py"
    (task_home.work / "main.py").write_text("from task import show\n")
    done = task_home.run("edit", "task.py", "move show to views/show.py", "--yes")
    assert done.code == 0, done.out + done.err
    assert new.read_text() == TASK[TASK.index("def show") :]
    assert "show" not in file.read_text()
    assert (task_home.work / "main.py").read_text() == "from views.show import show\n"
    assert task_home.run("undo").code == 0
    assert (file.read_text(), new.exists()) == (TASK, False)
    assert (task_home.work / "main.py").read_text() == "from task import show\n"
