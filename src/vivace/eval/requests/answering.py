"""One request, answered as by `vivace -p REQUEST --yes`: no file is named, and nobody can be asked.

Owns the copy of the tree that the loop edits, and what is counted of the answer. Does not judge it
(`judging`).
"""

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.conversation.message.intent import decide_intent
from vivace.agent.conversation.transcript.history import History
from vivace.agent.conversation.turns.editing import edit_in_turn
from vivace.agent.door import real_path
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.check.substance import changes_words_alone
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.places.clues import is_beside
from vivace.agent.edits.places.index import FileIndex
from vivace.agent.edits.proposal import Decision, FileProposal, Proposal, Reject
from vivace.agent.effort import Effort
from vivace.agent.events.edit import EditPlanned, EditProposed, UnitLocated
from vivace.agent.events.every import AgentEvent
from vivace.agent.model import Model
from vivace.errors import ContextOverflow, PlaceUnclear, RequestRefused, ServerGone, StartError, VivaceError
from vivace.eval.edits.answering import Located
from vivace.eval.edits.bundle import bundle
from vivace.eval.edits.changes import lines_changed
from vivace.eval.edits.results import Answer, AnySet, Found, Outcome, Replaced, replaced
from vivace.eval.requests.places import patch_of, right_places
from vivace.eval.requests.requests import Request
from vivace.eval.requests.trees import Texts, texts_of, unpacked

MAX_OTHERS = 8  # other answers that are kept, for a look at how one is chosen


class Watching(Located):
    """A presenter that remembers where the loop went and what else it could have written."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.places: dict[str, Unit] = {}  # path:name
        self.proposal: Proposal | None = None

    def show(self, event: AgentEvent) -> None:
        super().show(event)
        if isinstance(event, UnitLocated):
            self._add(event.source.path, event.unit)
        elif isinstance(event, EditPlanned):
            for each in event.units:
                self._add(each.path, each.unit)
        elif isinstance(event, EditProposed):
            self.proposal = event.proposal

    async def decide(self, proposal: Proposal) -> Decision:
        self.proposal = proposal
        return Reject()

    def _add(self, path: Path, unit: Unit) -> None:
        self.places[f"{path.relative_to(self.folder)}:{unit.qualified_name}"] = unit


@dataclass(frozen=True)
class _Ended:
    """How the loop ended: what it wrote, or why it wrote nothing."""

    outcome: Outcome
    refusal: str = ""
    asked: tuple[str, ...] = ()


async def answer_request(set_name: AnySet, request: Request, effort: Effort, model: Model) -> Answer:
    """Answer one request. A refusal of the loop is an answer; errors of the server are raised."""
    with tempfile.TemporaryDirectory(prefix="vivace-eval-") as made:
        work = real_path(Path(made))
        pristine = await asyncio.to_thread(unpacked, request.archive, work / "before")
        folder = await asyncio.to_thread(unpacked, request.archive, work / "tree")
        seen, turns_before, began_s = Watching(folder), len(model.waterfalls), time.perf_counter()
        ended = await _edit(folder, work, request.text, effort, model, seen)
        seconds = time.perf_counter() - began_s
        before, after = texts_of(pristine), texts_of(folder)
        changed = {name: text for name, text in after.items() if text != before.get(name)}
        found = _found(ended, seen, request, pristine, before, changed)
    turns = model.waterfalls[turns_before:]
    return Answer(
        set_name,
        model.name,
        effort,
        request.name,
        bundle(changed) if changed else None,
        ended.refusal or ("" if changed else "Nothing was changed."),
        seconds=seconds,
        output_tokens=sum(turn.output_tokens for turn in turns),
        prefilled_tokens=sum(turn.new_tokens for turn in turns),
        lines_changed=sum(lines_changed(before.get(name, ""), text) for name, text in changed.items()),
        found=found,
    )


async def _edit(folder: Path, work: Path, text: str, effort: Effort, model: Model, seen: Watching) -> _Ended:
    """Let the loop edit the tree in `folder`."""
    try:
        if (await decide_intent(model, text)).kind == "question":
            return _Ended("question", "It was taken for a question.")
        await edit_in_turn(
            History(folder=str(folder)),
            model,
            seen,
            Journal(work / "undo"),
            text=text,
            mentions=(),
            approval="always",
            effort=effort,
            index=FileIndex(folder, work / "index.sqlite"),
        )
    except PlaceUnclear as error:
        return _Ended("asked", error.message, error.places)
    except ContextOverflow as error:  # which the server says, of one request
        return _Ended("refused", error.message)
    except (ServerGone, RequestRefused, StartError):
        raise
    except VivaceError as error:
        return _Ended("refused", error.message)
    return _Ended("written")


def _found(
    ended: _Ended, seen: Watching, request: Request, pristine: Path, before: Texts, changed: Texts
) -> Found:
    """Compare where the loop went with where the reference goes."""
    right = {
        f"{path}:{unit}" for path, units in right_places(pristine, request.patch).items() for unit in units
    }
    files = {place.rpartition(":")[0] for place in right}
    edited = right_places(pristine, patch_of(before, changed))
    went = {*seen.places, *(f"{path}:{unit}" for path, units in edited.items() for unit in units)}
    went_to_files = {*changed, *(place.rpartition(":")[0] for place in seen.places)}
    languages = {name: language_for(pristine / name) for name in changed}
    others = (
        seen.proposal.files[0].others[:MAX_OTHERS] if seen.proposal and len(seen.proposal.files) == 1 else ()
    )
    return Found(
        ended.outcome if changed or ended.outcome != "written" else "refused",
        units=tuple(seen.places),
        asked=ended.asked,
        unit_lines=max((unit.last_line - unit.first_line + 1 for unit in seen.places.values()), default=0),
        is_right_file=bool(files & went_to_files),
        is_right_unit=bool(right & went),
        is_right_asked=bool(right & set(ended.asked)),
        is_words_alone=bool(changed)
        and all(
            changes_words_alone(languages[name], before.get(name, ""), changed[name]) for name in changed
        ),
        is_beside_alone=bool(changed) and all(is_beside(name) for name in changed),
        others=tuple(_replaced(each, seen.folder) for each in others),
    )


def _replaced(proposal: FileProposal, folder: Path) -> Replaced:
    path = str(proposal.source.path.relative_to(folder))
    texts = [raw.decode("utf-8", "replace") for raw in (proposal.source.raw, proposal.new_bytes)]
    return replaced(path, *texts)
