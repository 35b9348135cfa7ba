"""How a face answers what the agent asks: about a change, a file that changed meanwhile, or a call.

Owns the shapes, for conversations and for edits outside of them. Does not own the questions (`events`).
"""

# ruff: noqa: RUF012 - msgspec copies an empty list that is a default

from typing import Literal

from vivace.web.messages.conversation_requests import ConversationRequest
from vivace.web.messages.edit_requests import EditRequest

DecisionName = Literal["accept", "reject", "hunks", "text"]
ChoiceName = Literal["edit", "file", "text", "stop"]


class Decide(ConversationRequest, frozen=True, tag="conversation.decide"):
    """Answer a question of kind `edit`. The first answer counts; a later one is refused with `gone`."""

    question: str
    decision: DecisionName
    hunks: list[int] = []  # with `hunks`: the ids of those to write
    texts: list[str] = []  # with `text`: the new text of each file, in the question's order
    reason: str = ""  # with `reject`: for the model's next turn


class Resolve(ConversationRequest, frozen=True, tag="conversation.resolve"):
    """Answer a question of kind `conflict`."""

    question: str
    choice: ChoiceName
    text: str = ""  # with `text`: the file as the user has merged it


class Approve(ConversationRequest, frozen=True, tag="conversation.approve"):
    """Answer a question of kind `call`."""

    question: str
    is_allowed: bool
    digest: str = ""  # with a yes: the question's, for what the person saw
    is_kept: bool = False  # a yes to the same call from now on, too
    reason: str = ""  # of a no, for the model


class EditDecide(EditRequest, frozen=True, tag="edit.decide"):
    """Answer the edit's question of kind `edit`."""

    question: str
    decision: DecisionName
    hunks: list[int] = []
    texts: list[str] = []
    reason: str = ""


class EditResolve(EditRequest, frozen=True, tag="edit.resolve"):
    """Answer the edit's question of kind `conflict`."""

    question: str
    choice: ChoiceName
    text: str = ""
