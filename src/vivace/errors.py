"""Every error a person can meet, each with what to do about it and the exit code it ends in.

Owns the tree of typed errors. Does not print: `cli` does that, and `server` turns them into error bodies.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DONE, FAILED, USAGE, COULD_NOT_START, APPROVAL_NEEDED, LIMIT_REACHED = 0, 1, 2, 3, 4, 5
BUSY, INTERRUPTED = 75, 130


TOO_MANY = 429  # the status of a request that is refused because of all the others


class VivaceError(Exception):
    """What happened, in one sentence; `hint` says what to do; `code` names it on the wire."""

    exit_code = FAILED
    code = "failed"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(VivaceError):
    """The request itself is wrong: a path, a name, a flag, an empty instruction."""

    exit_code = USAGE
    code = "invalid_request_error"


class FileProblem(UsageError):
    """The file to edit is missing, binary, too large, not UTF-8 or a folder."""

    code = "file_problem"


class UnitNotFound(UsageError):
    """No function, class or line range of that name in the file."""

    code = "unit_not_found"


class ContextOverflow(UsageError):
    """What must be read does not fit into the model's context."""

    code = "context_length_exceeded"


class ConfigError(UsageError):
    """The configuration file or an environment variable holds something we do not understand."""

    code = "bad_config"


class ConversationNotFound(UsageError):
    """No conversation has that id, or none was begun in this folder."""

    code = "conversation_not_found"


class StartError(VivaceError):
    """Something needed could not be started: the server, the engine, a missing model."""

    exit_code = COULD_NOT_START
    code = "could_not_start"


class ModelUnavailable(StartError):
    """The model's file could not be had, or is not what the catalog says."""

    code = "model_unavailable"


class SandboxUnavailable(StartError):
    """A program cannot be sandboxed on this machine, so it is not run."""

    code = "sandbox_unavailable"


class TestsCannotRun(VivaceError):
    """The user asked for tests of a change, and they cannot run: the change is not written untested."""

    # No StartError: those may go away by themselves, and are tried again in the background.
    __test__ = False  # it is no test, whatever pytest thinks of its name
    exit_code = COULD_NOT_START
    code = "tests_cannot_run"


class ServerGone(VivaceError):
    """The server or engine went away in the middle, and one retry did not bring it back."""

    code = "server_gone"


class TurnFault(VivaceError):
    """Something of ours broke in one turn; other turns go on."""

    code = "server_error"


class RequestRefused(VivaceError):
    """The server answered with an error body."""

    code = "refused"

    def __init__(self, message: str, hint: str = "", *, code: str = "refused", status: int = 400) -> None:
        super().__init__(message, hint)
        self.code = code
        self.status = status
        if status == TOO_MANY:
            self.exit_code = BUSY


class EditRejected(VivaceError):
    """The model's answer cannot be applied: it does not parse, lost its name, or never ended."""

    code = "edit_rejected"


class PlaceUnclear(VivaceError):
    """Several places of the repository could be meant, and the user has to say which."""

    exit_code = APPROVAL_NEEDED
    code = "place_unclear"

    def __init__(self, places: "Sequence[str]") -> None:
        listed = "; ".join(f"{number}. {place}" for number, place in enumerate(places, 1))
        super().__init__(
            f"It is not clear which place is meant; nothing was written. The likeliest: {listed}.",
            f"Answer with a number, or say it again with a place: @{places[0]}."
            if places
            else "Name a file.",
        )
        self.places = tuple(places)


class StepFailed(VivaceError):
    """A step of a workflow failed: its command, its check, or the model's answer."""

    code = "step_failed"


class WriteProblem(VivaceError):
    """The file could not be written: it is read-only, or the disk is full."""

    code = "write_problem"
    kept: "tuple[Path, ...]" = ()  # where the proposed texts were saved


class EditConflict(WriteProblem):
    """The file was changed, made or removed while we worked, and the edit cannot be merged with that.

    A person has to say which text to take.
    """

    exit_code = APPROVAL_NEEDED
    code = "edit_conflict"


class NothingToUndo(VivaceError):
    """There is no edit to take back or to bring back, or what came after it is in the same lines."""

    code = "nothing_to_undo"


class ApprovalNeeded(VivaceError):
    """A change was made, and nobody is there to say yes to it."""

    exit_code = APPROVAL_NEEDED
    code = "approval_needed"


class ProjectNotTrusted(ApprovalNeeded):
    """A project's configuration would start something, and its user has not seen and allowed it."""

    code = "project_not_trusted"


class McpProblem(VivaceError):
    """A server of tools (MCP) did not start, did not answer, or answered with an error."""

    code = "mcp_problem"


class LimitReached(VivaceError):
    """It took as many turns or tokens as were allowed, and is not finished."""

    exit_code = LIMIT_REACHED
    code = "limit_reached"


class ConversationBusy(VivaceError):
    """A turn of the conversation runs already, here or in another process."""

    exit_code = BUSY
    code = "conversation_busy"


class HolderGone(VivaceError):
    """The process that held the conversation has ended; another face goes on with it."""

    exit_code = BUSY
    code = "holder_gone"


class TaskNotFound(UsageError):
    """No background task has that id, or more than one has."""

    code = "task_not_found"


class TaskBusy(VivaceError):
    """A process works on the background task, so this cannot be done now."""

    exit_code = BUSY
    code = "task_busy"


class TaskTooLarge(UsageError):
    """The folder is too large to be copied for a background task."""

    code = "task_too_large"


class QuestionGone(VivaceError):
    """Somebody else has answered the question, or the turn that asked was stopped."""

    code = "gone"


class StaleFile(WriteProblem):
    """The file on disk is not the one that was read, so it is not overwritten."""

    code = "changed"


class BadRequest(UsageError):
    """A face sent what the face host does not understand."""

    code = "bad_request"
