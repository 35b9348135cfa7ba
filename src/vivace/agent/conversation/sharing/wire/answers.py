"""Decisions, resolutions and errors as forms, and back.

Owns which form means which value. What makes no sense raises `ValueError`; an error that is not known here is
a `TurnFault`. Does not own events (`event_codec`).
"""

from collections.abc import Callable

from vivace.agent.conversation.sharing.wire.forms import DecisionForm, ResolutionForm
from vivace.agent.edits.conflict import Resolution, Stop, TakeEdit, TakeFile, TakeText
from vivace.agent.edits.proposal import Accept, AcceptHunks, Decision, Reject, UseText


def decision_form(decision: Decision) -> DecisionForm:
    match decision:
        case AcceptHunks(hunks=hunks):
            return DecisionForm("hunks", hunks=tuple(sorted(hunks)))
        case UseText(texts=texts):
            return DecisionForm("text", texts=texts)
        case Reject(reason=reason):
            return DecisionForm("reject", reason=reason)
    return DecisionForm("accept")


def decision_of(form: DecisionForm | None) -> Decision:
    match form:
        case DecisionForm(kind="accept"):
            return Accept()
        case DecisionForm(kind="hunks", hunks=hunks):
            return AcceptHunks(frozenset(hunks))
        case DecisionForm(kind="text", texts=texts):
            return UseText(texts)
        case DecisionForm(kind="reject", reason=reason):
            return Reject(reason)
    raise ValueError("no decision")


def resolution_form(resolution: Resolution) -> ResolutionForm:
    match resolution:
        case TakeEdit():
            return ResolutionForm("edit")
        case TakeFile():
            return ResolutionForm("file")
        case TakeText(text=text):
            return ResolutionForm("text", text)
    return ResolutionForm("stop")


def resolution_of(form: ResolutionForm | None) -> Resolution:
    kinds: dict[str, Callable[[], Resolution]] = {"edit": TakeEdit, "file": TakeFile, "stop": Stop}
    if form is not None and form.kind == "text":
        return TakeText(form.text)
    if form is None or form.kind not in kinds:
        raise ValueError("no resolution")
    return kinds[form.kind]()
