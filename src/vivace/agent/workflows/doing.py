"""What one step does: an edit, a question, a command, a review; then its check, and another try if it fails.

Owns the permissions of a step, which are a task's (`permissions.decision`), and that a change whose check
fails is taken back. Does not own the order of steps (`running`).
"""

import asyncio
import re
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.message.mentions import read_mention, target_of
from vivace.agent.edits.apply.source import (
    SourceFile,
    check_led_to,
    is_there,
    new_source,
    read_source,
)
from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.find.units import file_unit, new_file_unit
from vivace.agent.edits.flow import EditTask, offer, run_edit
from vivace.agent.edits.proposal import Proposal, make_proposal
from vivace.agent.edits.scope import checked_instruction, read_scope
from vivace.agent.edits.write.answer import fence_for
from vivace.agent.events.task import ApprovalAnswered, ChangeTakenBack, FilesWritten, TextGrew
from vivace.agent.loop.asking import question
from vivace.agent.loop.calls import Desk
from vivace.agent.memory.opening import memory_for
from vivace.agent.model import Model
from vivace.agent.permissions.decision import (
    Need,
    ReadPath,
    RunCommand,
    Situation,
    Verdict,
    WritePath,
    decide,
)
from vivace.agent.permissions.paths import Place, locate
from vivace.agent.prompting import begun_answer, read_prompt, user
from vivace.agent.sandbox.run import Outcome
from vivace.agent.tasks.resuming import NOT_WRITTEN, WRITTEN, look_at
from vivace.agent.tools.bounded import bounded, printable
from vivace.agent.tools.shell import STOPPED, run_command
from vivace.agent.workflows.filling import filled, filled_command
from vivace.agent.workflows.presenting import StepPresenter
from vivace.agent.workflows.progress import Progress
from vivace.agent.workflows.recipe import Step, Where
from vivace.errors import ApprovalNeeded, NothingToUndo, SandboxUnavailable, ServerGone, StepFailed

COMMAND_S = 600
ANSWER_TOKENS = 1024
DIFF_CHARS = 6000  # that a review reads
COMPLAINT_CHARS = 1500
_BLOCK = re.compile(r"^(`{3,})[^\n`]*\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)


class StepWork:
    def __init__(self, desk: Desk, connection: Connection, before: Progress) -> None:
        self._desk = desk
        self._connection = connection
        self._before = before  # what an earlier process left; `diffs` grows
        self.steers = list(before.steers)
        self._allowed: set[tuple[str, str]] = set()  # checks without a sandbox, by their key and line

    async def do(self, step: Step, values: Mapping[str, str], key: str) -> str:
        """Do a step and check it. Return its output."""
        await self._check_can_check(step, values, key)
        match step.kind:
            case "run":
                return await self._run(step, values, key)
            case "review":
                output = await self._review(filled(step.review or "", values))
                if problem := await self._problem(step, values, key, output):
                    raise StepFailed(problem)
                return output
        return await self._tried(step, values, key)

    # ---- edits and questions ----------------------------------------------------------------------

    async def _tried(self, step: Step, values: Mapping[str, str], key: str) -> str:
        """Let the model do it, and again if the check fails, told what was wrong."""
        problem = ""
        for _ in range(step.tries):
            output, entry = await self._once(step, values, key, problem)
            problem = await self._problem(step, values, key, output)
            if not problem:
                return output
            self._take_back(entry, problem)
        raise StepFailed(problem)

    async def _once(self, step: Step, values: Mapping[str, str], key: str, problem: str) -> tuple[str, int]:
        """Return what came of one try, and the entry of the journal; 0 if nothing was written."""
        if entry := self._written_before(key):
            place = locate(self._root, filled(step.to, values)) if step.to else None
            return (read_source(place.path, place.path).text if place else ""), entry
        told = [filled(step.edit or step.ask or "", values), *self.steers]
        if problem:
            told.append(f"(The last try was not good: {problem[:COMPLAINT_CHARS]})")
        if step.edit is not None:
            return "", await self._edit("\n".join(told), step, values, key)
        answer = await self._answer("\n\n".join(told), step, values, key)
        return answer, await self._write_output(step, values, key, answer)

    async def _edit(self, instruction: str, step: Step, values: Mapping[str, str], key: str) -> int:
        instruction = checked_instruction(instruction)
        names = [filled(file, values) for file in step.files]
        targets = [parse_target(str(self._root / name)) for name in names]
        places = [locate(self._root, str(target.path)) for target in targets]
        verdict = self._verdict([WritePath(place) for place in places])
        scopes = tuple(read_scope(each, to_write=True, instruction=instruction) for each in targets)
        for scope, place in zip(scopes, places, strict=True):
            check_led_to(scope.source, place.path)
        settings = self._connection.settings
        memory = memory_for(settings, self._root, settings.model)
        task = EditTask(scopes, instruction, "ask", memory=memory)
        presenter = StepPresenter(self._desk.presenter, self._root, key, verdict)
        entry = await run_edit(task, await self._model(), presenter, self._desk.journal)
        return self._kept(entry.number if entry else 0, presenter)

    async def _answer(self, question: str, step: Step, values: Mapping[str, str], key: str) -> str:
        parts = [await self._fenced(filled(file, values), key) for file in step.files]
        asked = user("\n\n".join([*parts, question]))
        said = ""
        try:
            said = await self._write_answer([*read_prompt("ask"), asked])
        except ServerGone:
            await self._connection.renew()
            said = await self._write_answer([*read_prompt("ask"), asked])
        if not step.is_code:
            return said.strip()
        block = _BLOCK.search(said)
        return (block[2] if block else said).strip("\n")

    async def _write_answer(self, messages: list[dict[str, str]]) -> str:
        model, said = await self._model(), []
        async with aclosing(model.write(messages, max_tokens=ANSWER_TOKENS)) as deltas:
            async for delta in deltas:
                said.append(delta)
                self._desk.presenter.show(TextGrew(text=delta))
        return "".join(said)

    async def _review(self, question: str) -> str:
        """Return yes or no: which of them the model finds likelier, after the change so far."""
        diff = "".join(self._before.diffs.values())[-DIFF_CHARS:]
        fence = fence_for(diff)
        asked = user(f"The change:\n{fence}diff\n{diff}{fence}\n\n{question} Answer yes or no.")
        model = await self._model()
        yes, no = await model.score([*read_prompt("ask"), asked, begun_answer("Answer:")], [" yes", " no"])
        return "yes" if yes >= no else "no"

    async def _fenced(self, name: str, key: str) -> str:
        place = locate(self._root, str(target_of(name, self._root).path))
        await self._allow([ReadPath(place)], f"{key} read", name)
        shown, tag, text = await asyncio.to_thread(read_mention, name, self._root, judged=place.path)
        fence = fence_for(text)
        return f"{shown}\n{fence}{tag}\n{text}{fence}"

    # ---- files ------------------------------------------------------------------------------------

    async def _write_output(self, step: Step, values: Mapping[str, str], key: str, text: str) -> int:
        """Write the output into the step's file, if it has one, as a proposal like any edit."""
        if not step.to:
            return 0
        name = filled(step.to, values)
        place = locate(self._root, name)
        verdict = self._verdict([WritePath(place)])
        source = _source(place, is_new=step.where == "new")
        unit = file_unit(source) if source.exists else new_file_unit(source)
        new = _placed(source.text, text, step.where).encode()
        proposal = Proposal((make_proposal(source, unit, f"write {name}", new),))
        if proposal.problems:
            raise StepFailed(" ".join(proposal.problems))
        presenter = StepPresenter(self._desk.presenter, self._root, key, verdict)
        entry = await offer(proposal, f"write {name}", "ask", presenter, self._desk.journal)
        return self._kept(entry.number if entry else 0, presenter)

    def _kept(self, entry: int, presenter: StepPresenter) -> int:
        """Return the entry, and remember its diff for a review."""
        if not entry:
            raise ApprovalNeeded(presenter.why_not or "The change was not taken.", "It can be resumed.")
        self._before.diffs[entry] = presenter.diff
        return entry

    def _written_before(self, key: str) -> int:
        """Return the entry of a write that an earlier process did before it was cut off; 0 if it did not."""
        writing = self._before.writing.pop(key, None)
        if writing is None:
            return 0
        entries: list[int] = []

        def show(written: FilesWritten) -> None:
            entries.append(written.entry)
            self._desk.presenter.show(written)

        outcome = look_at(writing, self._desk.journal, show)
        if outcome not in (WRITTEN, NOT_WRITTEN):
            raise ApprovalNeeded(outcome, "Look at the files; `vivace undo` takes the change back.")
        return entries[0] if entries else 0

    def _take_back(self, entry: int, problem: str) -> None:
        if not entry:
            return
        try:
            self._desk.journal.undo(number=entry)
        except NothingToUndo as error:
            raise StepFailed(f"{problem} The change could not be taken back: {error.message}") from error
        self._before.diffs.pop(entry, None)
        self._desk.presenter.show(ChangeTakenBack(entry=entry, problem=problem[:COMPLAINT_CHARS]))

    # ---- commands and checks ----------------------------------------------------------------------

    async def _run(self, step: Step, values: Mapping[str, str], key: str) -> str:
        line = filled_command(step.run or "", values)
        if key in self._before.open:
            self._verdict([RunCommand(line)])
            await self._ask(
                key, line, "It was cut off while it ran, and its effect is not known. Run it again?"
            )
        outcome = await self._command(line, key)
        output = bounded(printable(outcome.output)).strip("\n")
        if not outcome.is_success:
            raise StepFailed(_how_it_ended(line, outcome, output))
        entry = await self._write_output(step, values, key, output)
        if problem := await self._problem(step, values, key, output):
            self._take_back(entry, problem)
            raise StepFailed(problem)
        return output

    async def _problem(self, step: Step, values: Mapping[str, str], key: str, output: str) -> str:
        """Return what the step's check says against it; "" if it is good."""
        check = step.check
        if check.says and not re.search(check.says, output, re.MULTILINE):
            return f"The output has nothing that fits {check.says!r}: {output[:200]!r}."
        if check.run:
            line = filled_command(check.run, values)
            outcome = await self._command(line, f"{key} check")
            if not outcome.is_success:
                return _how_it_ended(line, outcome, bounded(printable(outcome.output), COMPLAINT_CHARS))
        return ""

    async def _check_can_check(self, step: Step, values: Mapping[str, str], key: str) -> None:
        """Raise SandboxUnavailable, before the step writes, if its check cannot run and was not allowed."""
        if not step.check.run or self._desk.context.has_sandbox:
            return
        line, name = filled_command(step.check.run, values), f"{key} check"
        try:
            await self._allow([RunCommand(line)], name, line)
        except (ApprovalNeeded, StepFailed) as error:
            message = f"The check of step {key} cannot run, so nothing is written. {error.message}"
            raise SandboxUnavailable(message, error.hint) from error
        self._allowed.add((name, line))

    async def _command(self, line: str, key: str) -> Outcome:
        if (key, line) not in self._allowed:
            await self._allow([RunCommand(line)], key, line)
        context = self._desk.context
        outcome = await run_command(line, context, COMMAND_S, leaves_sandbox=not context.has_sandbox)
        if outcome.undone:
            self._desk.presenter.show(TextGrew(text=f"[{outcome.undone}]\n"))
        return outcome

    # ---- permissions ------------------------------------------------------------------------------

    @property
    def _root(self) -> Path:
        return self._desk.context.root

    def _verdict(self, needs: list[Need]) -> Verdict:
        """Return whether it may be. Raise `StepFailed` for what may never be."""
        context = self._desk.context
        verdict = decide(needs, context.policies, Situation(is_tainted=True, has_sandbox=context.has_sandbox))
        if verdict.kind == "refuse":
            raise StepFailed(f"It is not allowed: {verdict.reason}", self._remedy(needs))
        return verdict

    async def _allow(self, needs: list[Need], key: str, title: str) -> None:
        """Return if it may be done; ask a person where the rules say so."""
        verdict = self._verdict(needs)
        if verdict.kind == "ask":
            await self._ask(key, title, verdict.reason, self._remedy(needs))

    def _remedy(self, needs: list[Need]) -> str:
        """Return what would make a yes unnecessary."""
        runs = any(isinstance(need, RunCommand) for need in needs)
        return self._desk.context.sandbox_remedy if runs else ""

    async def _ask(self, key: str, exact: str, reason: str, remedy: str = "") -> None:
        asked = question(call_id=key, tool="run", title=exact, exact=exact, reason=reason)
        presenter = self._desk.presenter
        presenter.show(asked)
        answer = await presenter.approve(asked)
        presenter.show(
            ApprovalAnswered(call_id=asked.call_id, is_allowed=answer.is_allowed, reason=answer.reason)
        )
        if not answer.allows(asked):
            said = " ".join(
                filter(None, [f"It was not allowed: {asked.title}.", asked.reason, answer.reason])
            )
            raise ApprovalNeeded(said, f"{remedy} It can be resumed, where you can say yes.".strip())

    async def _model(self) -> Model:
        return await self._connection.model(self._connection.settings.model)


def _source(place: Place, *, is_new: bool) -> SourceFile:
    path = place.path
    return new_source(path, path) if is_new or not is_there(path) else read_source(path, path)


def _placed(old: str, text: str, where: Where) -> str:
    """Return the file's text with the output in its place."""
    text = f"{text.rstrip()}\n"
    if where in ("new", "replace") or not old.strip():
        return text
    if where == "end":
        return f"{old.rstrip()}\n\n\n{text}"
    title, _, rest = old.partition("\n")
    if not title.startswith("# "):
        return f"{text}\n{old}"
    return f"{title}\n\n{text}\n{rest.lstrip()}".rstrip() + "\n"


def _how_it_ended(line: str, outcome: Outcome, output: str) -> str:
    ended = STOPPED.get(outcome.stopped_by, f"exit code {outcome.exit_code}")
    return f"`{line}` ended with {ended}.\n{output[-COMPLAINT_CHARS:]}".rstrip()
