"""The store of notes: projects, words, damage, and any text of a user's."""

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.memory.full_text import all_of, any_of
from vivace.agent.memory.notes import MAX_FOUND, NoteStore
from vivace.agent.memory.recall import NOTE_CHARS, Memory
from vivace.errors import UsageError, WriteProblem

ONE, OTHER = Path("/one"), Path("/other")


@pytest.fixture
def store(tmp_path: Path) -> NoteStore:
    return NoteStore(tmp_path, ONE)


def texts(notes: object) -> list[str]:
    return [note.text for note in notes]  # type: ignore[attr-defined]


def test_notes_belong_to_a_project_or_to_all(store: NoteStore, tmp_path: Path) -> None:
    """A project sees its own notes and those for all, never another project's, and cannot remove them."""
    store.add("the database is Postgres")
    store.add("answer in French", for_all=True)
    other = NoteStore(tmp_path, OTHER)
    hidden = other.add("the database is MySQL")
    assert texts(store.all()) == ["the database is Postgres", "answer in French"]
    assert texts(other.search("database")) == ["the database is MySQL"]
    with pytest.raises(UsageError):
        store.remove(hidden.id)


def test_a_message_finds_the_notes_that_share_its_words(store: NoteStore) -> None:
    """Words are compared by their stems; common words find nothing."""
    store.add("Migrations are written by hand, never generated.")
    store.add("Tests use the fixture `clock`.")
    assert texts(store.about("write a migration for users")) == [
        "Migrations are written by hand, never generated."
    ]
    assert texts(store.about("why does `clock_test` fail?")) == ["Tests use the fixture `clock`."]
    assert store.about("please make it so that the file is not used") == []


def test_few_notes_go_with_a_message(tmp_path: Path) -> None:
    """However many notes fit, a message brings few, and not much text."""
    memory = Memory(tmp_path, tmp_path / "state", None, 2000)
    for number in range(20):
        memory.notes.add(f"parser rule {number} " + "x" * 300)
    notes = memory.recall("the parser").notes
    assert 0 < len(notes) <= MAX_FOUND
    assert sum(len(note.text) for note in notes) <= NOTE_CHARS


def test_a_note_can_be_changed_and_removed(store: NoteStore) -> None:
    """The words of the old text find nothing any more."""
    note = store.add("use tabs")
    store.change(note.id, "use spaces")
    assert store.search("tabs") == []
    assert texts(store.search("spaces")) == ["use spaces"]
    store.remove(note.id)
    assert store.search("spaces") == []
    assert store.all() == []


def test_secrets_are_not_kept(store: NoteStore, tmp_path: Path) -> None:
    """A token in a note is redacted before it reaches the disk."""
    store.add("the key is ghp_" + "a" * 36)
    assert b"ghp_aaa" not in (tmp_path / "memory.db").read_bytes()
    assert "[redacted:github-token]" in store.all()[0].text


@pytest.mark.parametrize("text", ["", "  \n", "x" * 2001])
def test_a_note_says_something_and_not_too_much(store: NoteStore, text: str) -> None:
    """What is empty or long is refused, with what to do."""
    with pytest.raises(UsageError) as refused:
        store.add(text)
    assert refused.value.hint


def test_a_damaged_file_is_set_aside(store: NoteStore, tmp_path: Path) -> None:
    """The user is told where the old file is, and new notes are kept."""
    store.add("something")
    (tmp_path / "memory.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(WriteProblem, match="damaged"):
        store.all()
    assert list(tmp_path.glob("memory.db.damaged-*"))
    store.add("another")
    assert texts(store.all()) == ["another"]


def test_a_message_survives_damaged_notes(tmp_path: Path) -> None:
    """Recalling raises nothing: the message goes on, and the damage is said."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "memory.db").write_bytes(b"no database at all" * 100)
    recalled = Memory(tmp_path, state, None, 2000).recall("anything special")
    assert not recalled
    assert "damaged" in recalled.used().in_words


@pytest.fixture(scope="module")
def index() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE words USING fts5 (text, tokenize='porter unicode61')")
    database.execute("INSERT INTO words VALUES ('some text AND more')")
    return database


@given(text=st.text() | st.text(alphabet='"*:()^-+{}ANDORNOTEAR ', max_size=60))
def test_no_text_breaks_a_query(index: sqlite3.Connection, text: str) -> None:
    """Whatever a user types, both kinds of queries can be run."""
    for query in filter(None, (any_of(text), all_of(text))):
        index.execute("SELECT * FROM words WHERE words MATCH ?", (query,)).fetchall()


def test_operators_are_words(store: NoteStore) -> None:
    """AND, NEAR and a quote are searched for as they are."""
    store.add('do NOT use "NEAR" here')
    assert store.search('NOT "NEAR"')
    assert store.search("NEAR(a b)") == []
