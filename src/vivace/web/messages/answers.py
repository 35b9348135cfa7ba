"""What the face host answers: `{"id": 7, "ok": {…}}`, or `{"id": 7, "error": {…}}`.

Owns the shapes in `ok`. An operation whose answer is not listed here answers `{}`.
"""

from typing import Any

import msgspec

from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.web.messages.events import AnyTransient, EventFrame


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What all of these are."""


class ModelRow(Answer, frozen=True):
    """A model that can answer."""

    name: str
    is_default: bool = False
    is_here: bool = True  # false: it is downloaded when it is chosen
    title: str = ""


class Welcome(Answer, frozen=True):
    """Answer to `hello` and to `folder.open`."""

    version: int  # of this protocol
    program: str  # the version of vivace
    folder: str  # that the face works in, absolute
    models: list[ModelRow]
    model: str  # of new conversations
    effort: str  # of new conversations
    efforts: list[str]
    policies: list[dict[str, str]]  # permission modes, each with name and help
    settings: dict[str, Any]  # what a face may show: theme


class ConversationRow(Answer, frozen=True):
    """A conversation in a list."""

    conversation: str  # its id
    title: str  # as it was renamed, or how its first message begins
    folder: str
    model: str
    started_at_s: float
    used_at_s: float
    turns: int
    is_open: bool = False  # in this host
    is_running: bool = False
    excerpt: str = ""  # of a search: where the words stand


class ConversationRows(Answer, frozen=True):
    """Answer to `conversations.list` and `conversations.search`."""

    conversations: list[ConversationRow]


class ConversationNamed(Answer, frozen=True):
    """Answer to `conversations.fork`."""

    conversation: str


class Snapshot(Answer, frozen=True):
    """Answer to `conversation.open`: all that happened, with text that came in pieces joined."""

    conversation: str
    folder: str
    epoch: str  # seq counts anew in another epoch
    seq: int  # the next event is a later one
    is_whole: bool  # false: `records` is empty, `events` are those after the number that was asked for
    is_running: bool
    title: str
    records: list[AnyRecord]
    events: list[EventFrame]  # with is_whole false
    live: list[AnyTransient]  # what stands now: open questions, the state, the unit that is being written


class TurnNamed(Answer, frozen=True):
    """Answer to `conversation.send`."""

    turn: int


class Prompted(Answer, frozen=True):
    """A part of the prompt."""

    name: str
    tokens: int
    text: str  # how it begins


class ContextCounted(Answer, frozen=True):
    """Answer to `conversation.context`."""

    parts: list[Prompted]
    used_tokens: int
    window_tokens: int


class Text(Answer, frozen=True):
    """Answer to `conversation.export`, `conversation.btw` and `tasks.diff`."""

    text: str


class TreeEntry(Answer, frozen=True):
    """A file or a folder."""

    path: str  # relative to the face's folder, with `/`
    is_folder: bool


class Tree(Answer, frozen=True):
    """Answer to `files.tree`."""

    entries: list[TreeEntry]  # sorted by path, a folder before what is in it
    is_cut: bool  # there are more than are listed


class FoundFiles(Answer, frozen=True):
    """Answer to `files.find`."""

    paths: list[str]


class FileText(Answer, frozen=True):
    """Answer to `files.read`."""

    path: str  # relative to the face's folder
    absolute: str  # as events name it
    text: str
    digest: str
    is_writable: bool


class FileDigest(Answer, frozen=True):
    """Answer to `files.write`: the digest of what is on disk now."""

    digest: str


class EditNamed(Answer, frozen=True):
    """Answer to `edit.start`."""

    edit: str


class TaskRow(Answer, frozen=True):
    """A background task in a list."""

    task: str  # its id
    instruction: str
    folder: str
    model: str
    status: str  # queued, running, waiting, interrupted, done, stopped, failed or limit
    last: str  # what it did last, in a line
    text: str  # the model's last words
    turns: int
    tokens: int
    seconds: float
    asked: dict[str, Any] | None = None  # what it waits for: tool, title, shown, reason, digest
    is_taken: bool = False  # its changes were taken over


class TaskRows(Answer, frozen=True):
    """Answer to `tasks.list`."""

    tasks: list[TaskRow]


class TaskNamed(Answer, frozen=True):
    """Answer to `tasks.start`."""

    task: str


class TaskLines(Answer, frozen=True):
    """Answer to `tasks.log`."""

    lines: list[dict[str, Any]]  # steps of a task, as the transcript's page has them, with `at_s`
    next: int  # `after` of the next request


class ModelRows(Answer, frozen=True):
    """Answer to `models.list`."""

    models: list[ModelRow]


class Sample(Answer, frozen=True):
    """How the server was in a few seconds. A figure is 0 where nothing was measured."""

    at_s: float  # Unix time
    tokens_per_s: float  # written, while it wrote
    first_token_ms: float  # mean of the turns that began
    cached_share: float  # of the prompt's tokens, those that were in the KV already
    turns: int  # that ended


class MetricsAnswer(Answer, frozen=True):
    """Answer to `metrics.read`."""

    samples: list[Sample]  # oldest first
    every_s: float


class KeptResult(Answer, frozen=True):
    """What a `vivace bench` or `vivace eval` has printed with `--json`."""

    name: str  # such as "bench" or "eval edits"
    at_s: float
    result: dict[str, Any]


class ResultRows(Answer, frozen=True):
    """Answer to `results.list`."""

    results: list[KeptResult]


class Problem(Answer, frozen=True):
    """What went wrong. Codes are those of the commands, and `busy`, `gone`, `changed`, `bad_request`."""

    code: str
    message: str
    hint: str = ""


class Ok(msgspec.Struct, frozen=True):
    """The request with this id was done."""

    id: int
    ok: Any


class Refused(msgspec.Struct, frozen=True):
    """The request with this id was not done. Nothing was changed by it."""

    id: int  # 0: the frame could not be read
    error: Problem


ANSWERS = (
    Welcome,
    ModelRow,
    ConversationRows,
    ConversationRow,
    ConversationNamed,
    Snapshot,
    TurnNamed,
    ContextCounted,
    Prompted,
    Text,
    Tree,
    TreeEntry,
    FoundFiles,
    FileText,
    FileDigest,
    EditNamed,
    TaskRows,
    TaskRow,
    TaskNamed,
    TaskLines,
    ModelRows,
    MetricsAnswer,
    Sample,
    ResultRows,
    KeptResult,
    Problem,
)
