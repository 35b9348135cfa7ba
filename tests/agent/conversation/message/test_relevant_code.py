"""Which code a question brings that mentions none."""

import os
import time
from pathlib import Path

import pytest

from vivace.agent.conversation.message.relevant_code import (
    BUDGET_TOKENS,
    CHARS_PER_TOKEN,
    find_code,
    read_piece,
)
from vivace.agent.conversation.transcript import edit_records
from vivace.agent.conversation.transcript.history import History
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.events import talk as talk_events
from vivace.agent.events import turn as turn_events
from vivace.agent.events.turn import CodePiece

TODO = """from dataclasses import dataclass

LIMIT = 9


@dataclass
class Task:
    title: str


class TodoList:
    def add(self, title):
        return Task(title)

    def finish(self, number):
        return LIMIT
"""

LONG = "".join(f"def step_{number}(value):\n    return value\n\n\n" for number in range(300))
LONG += "def finalise(value):\n    return -value\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "todo.py": TODO,
        "src/parser.py": "def parse_line(line):\n    return line.split()\n",
        "tests/test_parser.py": "def test_parse_line():\n    pass\n",
        "src/long.py": LONG,
        **{f"many/m{number}.py": "def common_name():\n    pass\n" for number in range(4)},
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (1, 1))
    return tmp_path


def history_of(folder: Path, *lines: AnyRecord) -> History:
    history = History()
    began = talk_events.ConversationStarted(schema=1, id="x", folder=str(folder), model="m", at_s=0.0)
    for line in (began, *lines):
        history.take(line)
    return history


def edited(path: Path, unit: str) -> list[AnyRecord]:
    """Return the lines of a turn that changed this unit."""
    return [
        turn_events.TurnStarted(turn=1, text="change it", at_s=time.time()),
        turn_events.IntentDecided(kind="edit", by="words"),
        edit_records.UnitChosen(path=str(path), unit=unit, lines="1", by="user"),
        edit_records.EditWritten(path=str(path), diff="", entry=1),
        turn_events.TurnEnded(turn=1, status="completed"),
    ]


def asked(number: int = 1, **fields: tuple[str, ...]) -> list[AnyRecord]:
    """Return the lines of a question that was answered."""
    return [
        turn_events.TurnStarted(turn=number, text="what?", at_s=time.time(), **fields),
        turn_events.TurnEnded(turn=number, status="completed", response_id="resp_1"),
    ]


def found(history: History, text: str) -> list[tuple[str, str]]:
    return [(piece.path, piece.unit) for piece in find_code(history, text)]


@pytest.mark.parametrize(
    ("question", "places"),
    [
        ("How does TodoList.add work?", [("todo.py", "TodoList.add")]),
        ("how does todo.TodoList.add work", [("todo.py", "TodoList.add")]),
        ("what is a Task here", [("todo.py", "Task")]),
        ("what does parse_line return?", [("src/parser.py", "parse_line")]),
        (
            "what does `finish` do and what parse_line()?",
            [("todo.py", "TodoList.finish"), ("src/parser.py", "parse_line")],
        ),
        ("explain src/parser.py", [("src/parser.py", "")]),
        ("Explain parser.py.", [("src/parser.py", "")]),
        ("TodoList and TodoList.add?", [("todo.py", "TodoList")]),
        ("what does common_name do?", []),
        ("how do I add a number to a list?", []),
        ("what does the parser do?", []),
        ("hi", []),
        ("Add", []),
        ("why is asyncio.finish slow?", []),
        ("../../etc/passwd?", []),
        ("", []),
    ],
)
def test_names_bring_their_units(folder: Path, question: str, places: list[tuple[str, str]]) -> None:
    """A name of the repository brings its unit, a file's name the file; plain English brings nothing."""
    assert found(history_of(folder), question) == places


@pytest.mark.parametrize(
    ("question", "places"),
    [
        ("what does the parser do?", [("src/parser.py", "")]),
        ("why is it done so?", [("src/parser.py", "parse_line")]),
        ("explain this function", [("src/parser.py", "parse_line")]),
        ("what is a monad?", []),
        ("how does finish work?", []),
    ],
)
def test_an_edit_is_remembered(folder: Path, question: str, places: list[tuple[str, str]]) -> None:
    """After an edit, a word of its file's name or a word that points back brings what was edited."""
    assert found(history_of(folder, *edited(folder / "src/parser.py", "parse_line")), question) == places


def test_plain_words_name_units_of_a_recent_file(folder: Path) -> None:
    """'finish' is a word of English until its file was spoken of; of a file that is gone nothing is said."""
    history = history_of(folder, *edited(folder / "todo.py", "Task"))
    assert found(history, "how does finish work?") == [("todo.py", "TodoList.finish")]
    (folder / "todo.py").unlink()
    assert found(history, "how does finish work?") == []


def test_what_the_model_has_read_is_not_read_again(folder: Path) -> None:
    """A file that was mentioned is in the log: it comes again only when it has changed since."""
    history = history_of(folder, *asked(mentions=("todo.py",)))
    assert found(history, "How does TodoList.add work?") == []
    (folder / "todo.py").write_text(TODO + "# more\n")
    later = time.time() + 60
    os.utime(folder / "todo.py", (later, later))
    assert found(history, "How does TodoList.add work?") == [("todo.py", "TodoList.add")]


def test_a_summary_forgets_what_was_read(folder: Path) -> None:
    """What stood before a summary is not in the prompt any more, so it is read again."""
    history = history_of(folder, *asked(mentions=("todo.py",)))
    history.take(talk_events.Compacted(turn=1, summary="Things.", before_tokens=1))
    assert found(history, "How does TodoList.add work?") == [("todo.py", "TodoList.add")]


def test_a_piece_has_what_it_names_around_it(folder: Path) -> None:
    """The unit comes with the lines and signatures that it uses, under its name."""
    (piece,) = find_code(history_of(folder), "How does TodoList.add work?")
    text = read_piece(piece, folder)
    assert text.startswith("todo.py: TodoList.add\n```python\n")
    assert "class Task" in text
    assert "return Task(title)" in text
    assert "return LIMIT" not in text


def test_a_long_file_comes_as_its_outline_and_the_unit_that_fits(folder: Path) -> None:
    """Whatever is asked, the budget holds; what is left out is said."""
    pieces = find_code(history_of(folder), "how are values finalised in src/long.py?")
    assert [piece.label for piece in pieces] == ["src/long.py (outline)", "src/long.py: finalise"]
    shown = [read_piece(piece, folder) for piece in pieces]
    assert sum(map(len, shown)) <= BUDGET_TOKENS * CHARS_PER_TOKEN + 60 * len(pieces)


def test_pieces_of_a_transcript_are_read_back(folder: Path) -> None:
    """What was read with a turn is a part of its state, and the next edit knows of the file."""
    piece = CodePiece("todo.py", "Task", max_chars=100)
    history = history_of(folder, *asked()[:1], turn_events.CodeRead(pieces=(piece,)), *asked()[1:])
    assert history.turns[0].code == (piece,)
    assert history.last_mention == "todo.py"
