"""The calls of one turn: each is understood, allowed, run and answered, exactly once.

Owns the order. Calls that only read run together, and begin as soon as they are whole, unless one that
changes something stands before them. The others run one after the other when the model has said all. Changes
of files are written as one entry before anything else looks at them. Does not own what tools do (`tools`),
nor the rules (`permissions`).
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from vivace.agent.edits.apply.journal import Change, Journal
from vivace.agent.edits.apply.replacing import sha256_of
from vivace.agent.events.base import SCHEMA
from vivace.agent.events.task import (
    AnyStep,
    ApprovalAnswered,
    ApprovalAsked,
    CallEnded,
    CallMade,
    CallStarted,
    CallStatus,
    FilesWritten,
    FileWriting,
    PlanUpdated,
    TaskStarted,
    WritingBegan,
)
from vivace.agent.loop.asking import digest_of, question
from vivace.agent.loop.diffs import unified_diff
from vivace.agent.memory.recall import NOTHING, Recalled
from vivace.agent.permissions.decision import Need, Situation, Verdict, WritePath, can_be_kept, decide
from vivace.agent.tools.base import MalformedCall, Tool, ToolContext, ToolResult
from vivace.agent.tools.bounded import bounded
from vivace.agent.tools.toolbox import tool_named
from vivace.errors import VivaceError
from vivace.protocol.shapes.events import CustomToolCall, FunctionCall

log = logging.getLogger("vivace.agent.loop")
KEPT_WRITE = "A yes from now on counts for every change of the same files by this tool."
OUTPUT_TYPES = {FunctionCall: "function_call_output", CustomToolCall: "custom_tool_call_output"}


@dataclass(frozen=True)
class Approval:
    """A person's answer."""

    is_allowed: bool
    reason: str = ""  # of a no, which the model is told
    is_kept: bool = False  # a yes to the same call from now on, too
    digest: str = ""  # of what the person saw: a yes counts for nothing else

    def allows(self, asked: ApprovalAsked) -> bool:
        """Return whether it is a yes to just this question."""
        return self.is_allowed and self.digest == asked.digest


KeptCall = tuple[str, tuple[Need, ...]]  # a tool, and exactly what a call of it needs


class TaskPresenter(Protocol):
    """What a face implements to show a task and to ask about its calls."""

    def show(self, step: AnyStep) -> None:
        """Show a step. Return at once: the model's text waits for it."""

    async def approve(self, asked: ApprovalAsked) -> Approval:
        """Ask a person. Cancelled when the task is stopped."""
        ...


@dataclass
class Desk:
    """What all turns of a task share."""

    tools: list[Tool]
    context: ToolContext
    journal: Journal
    instruction: str
    presenter: TaskPresenter
    recalled: Recalled = NOTHING  # instruction files and notes, which stand in front of the task
    is_tainted: bool = False  # the model has read text that its user did not write
    entries: list[int] = field(default_factory=list)  # of the journal
    refused: int = 0  # calls that were not allowed
    unapproved: int = 0  # those of them to which a person could have said yes
    kept: set[KeptCall] = field(default_factory=set)  # that a person has allowed for good
    waited_s: float = 0.0  # for answers of a person
    waits_since_s: float | None = None  # on the monotonic clock

    def started(self, id: str, model: str) -> TaskStarted:
        """Return the first line of a task."""
        return TaskStarted(
            schema=SCHEMA,
            id=id,
            folder=str(self.context.root),
            model=model,
            task=self.instruction,
            access=self.context.policies[0].access,
            asking=self.context.policies[0].asking,
            has_sandbox=self.context.has_sandbox,
            at_s=time.time(),
        )

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count how long a person takes: that is none of the task's own time."""
        self.waits_since_s = time.monotonic()
        try:
            yield
        finally:
            self.waited_s, self.waits_since_s = self.all_waited_s, None

    @property
    def all_waited_s(self) -> float:
        """Return how long people were waited for, up to now."""
        since = self.waits_since_s
        return self.waited_s + (0.0 if since is None else time.monotonic() - since)


@dataclass
class Call:
    item: FunctionCall | CustomToolCall
    tool: Tool | None = None
    arguments: Any = None
    fault: str = ""  # why it cannot be understood
    verdict: Verdict = field(default_factory=lambda: Verdict("refuse"))
    needs: list[Need] = field(default_factory=list)  # that the verdict is on: what is run is what was judged
    approved: ApprovalAsked | None = None  # what a person has allowed
    running: "asyncio.Task[ToolResult] | None" = None
    result: ToolResult = field(default_factory=lambda: ToolResult(""))
    began_s: float = 0.0

    @property
    def title(self) -> str:
        return self.tool.title(self.arguments) if self.tool and not self.fault else ""

    @property
    def exact(self) -> str:
        """Return all of what the call would do, for a person to allow."""
        return self.tool.exact(self.arguments) if self.tool and not self.fault else ""

    @property
    def is_approved(self) -> bool:
        """Return whether what would run now is what was allowed, if somebody was asked."""
        allowed = self.approved
        return allowed is None or allowed.digest == digest_of(self.item.name, self.exact, allowed.reason)

    @property
    def is_read_only(self) -> bool:
        return self.tool is not None and self.tool.is_read_only

    @property
    def made(self) -> CallMade:
        """Return the call as the model wrote it."""
        item, is_custom = self.item, isinstance(self.item, CustomToolCall)
        given = item.input if isinstance(item, CustomToolCall) else item.arguments
        return CallMade(call_id=item.call_id, name=item.name, arguments=given, is_custom=is_custom)

    def output_item(self) -> dict[str, Any]:
        return {
            "type": OUTPUT_TYPES[type(self.item)],
            "call_id": self.item.call_id,
            "output": self.result.output,
        }


class Calls:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._calls: list[Call] = []
        self._staged: list[Call] = []  # whose changes are not written yet

    @property
    def has_faults(self) -> bool:
        return any(call.fault for call in self._calls)

    @property
    def made(self) -> list[CallMade]:
        return [call.made for call in self._calls]

    def __len__(self) -> int:
        return len(self._calls)

    def take(self, item: FunctionCall | CustomToolCall) -> None:
        """Take a call that is whole. Start it if nothing stands against it."""
        call = self._understood(item)
        self._calls.append(call)
        if call.verdict.kind == "allow" and all(each.is_read_only for each in self._calls):
            self._start(call)

    async def answer(self) -> list[dict[str, Any]]:
        """Run what has not run yet, in order. Return an output for every call."""
        for call in self._calls:
            if call.fault:
                self._settle(call, "malformed", ToolResult(f"Error: {call.fault}", call.fault))
            elif call.running or await self._is_started(call):
                await self._finish(call)
        await self._flush()
        return [call.output_item() for call in self._calls]

    async def abandon(self) -> None:
        """End what runs and forget what was not written: the turn does not count."""
        self._desk.context.writes.staged = {}
        for call in self._calls:
            if call.running:
                call.running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await call.running

    # ---- one call ---------------------------------------------------------------------------------

    def _understood(self, item: FunctionCall | CustomToolCall) -> Call:
        call = Call(item)
        given = item.arguments if isinstance(item, FunctionCall) else item.input
        try:
            call.tool = tool_named(self._desk.tools, item.name)
            call.arguments = call.tool.parse(given)
            call.verdict = self._verdict(call)
        except MalformedCall as error:
            call.fault = f"{error.message} {error.hint}".strip()
        return call

    def _verdict(self, call: Call) -> Verdict:
        try:
            needs = call.needs = self._needs(call)
        except VivaceError as error:  # a path that cannot be one, or not any more
            return Verdict("refuse", error.message)
        verdict = decide(needs, self._desk.context.policies, self._situation)
        is_kept = verdict.kind == "ask" and (call.item.name, tuple(needs)) in self._desk.kept
        return Verdict("allow") if is_kept and can_be_kept(needs, self._situation) else verdict

    @property
    def _situation(self) -> Situation:
        desk = self._desk
        return Situation(is_tainted=desk.is_tainted, has_sandbox=desk.context.has_sandbox)

    def _needs(self, call: Call) -> list[Need]:
        """Return what the call needs by what its paths lead to now."""
        assert call.tool is not None
        return call.tool.needs(call.arguments, self._desk.context)

    def _still_needs(self, call: Call, needs: list[Need]) -> bool:
        try:
            return self._needs(call) == needs
        except VivaceError:
            return False

    async def _is_started(self, call: Call) -> bool:
        """Decide anew, by what is so now, and ask if need be. Write what stands before it, then start it."""
        assert call.tool is not None
        if call.verdict.kind != "refuse":
            call.verdict = self._verdict(call)
        if call.verdict.kind == "ask":
            call.verdict = await self._asked(call)
        if call.verdict.kind == "allow" and not call.is_approved:
            call.verdict = Verdict("refuse", "It is not what was allowed.")
        if call.verdict.kind == "refuse":
            self._desk.refused += 1
            reason = call.verdict.reason
            self._settle(call, "refused", ToolResult(f"Refused: {reason}", reason, is_error=True))
            return False
        if not call.tool.stages:
            await self._flush()
        self._start(call)
        return True

    async def _asked(self, call: Call) -> Verdict:
        needs = call.needs
        is_keepable = can_be_kept(needs, self._situation)
        is_write = any(isinstance(need, WritePath) for need in needs)
        try:
            asked = question(
                call_id=call.item.call_id,
                tool=call.item.name,
                title=call.title,
                exact=call.exact,
                reason=f"{call.verdict.reason} {KEPT_WRITE if is_keepable and is_write else ''}",
                can_be_kept=is_keepable,
            )
        except VivaceError as error:
            return Verdict("refuse", f"{error.message} {error.hint}".strip())
        self._desk.presenter.show(asked)
        with self._desk.waiting():
            answer = await self._desk.presenter.approve(asked)
        self._desk.presenter.show(
            ApprovalAnswered(call_id=asked.call_id, is_allowed=answer.is_allowed, reason=answer.reason)
        )
        if not answer.is_allowed:
            self._desk.unapproved += 1
            return Verdict("refuse", f"{call.verdict.reason} {answer.reason or 'The user said no.'}")
        if not answer.allows(asked):
            return Verdict("refuse", "The answer was to another question.")
        call.approved = asked
        if not self._still_needs(call, needs):
            return Verdict("refuse", "What it leads to has changed since it was allowed.")
        if answer.is_kept and asked.can_be_kept:
            self._desk.kept.add((call.item.name, tuple(needs)))
        return Verdict("allow")

    def _start(self, call: Call) -> None:
        assert call.tool is not None
        call.began_s = time.monotonic()
        self._desk.presenter.show(
            CallStarted(call_id=call.item.call_id, tool=call.item.name, title=call.title)
        )
        call.running = asyncio.create_task(_run(call, self._desk.context))

    async def _finish(self, call: Call) -> None:
        """Wait for a call. One that staged changes has ended when they are written."""
        assert call.tool is not None
        assert call.running is not None
        plan = self._desk.context.plan
        result = await call.running
        self._desk.is_tainted |= call.tool.taints
        if self._desk.context.plan is not plan:
            self._desk.presenter.show(PlanUpdated(steps=list(self._desk.context.plan)))
        if call.tool.stages and not result.is_error:
            call.result = result
            self._staged.append(call)
        else:
            self._settle(call, "failed" if result.is_error else "done", result)

    async def _flush(self) -> None:
        """Write the changes of the calls so far as one entry. If that fails, those calls have failed."""
        staged, self._staged = self._staged, []
        if not staged:
            return
        failure: ToolResult | None = None
        self._desk.presenter.show(_writing(staged, self._desk.context))
        try:
            written, changes = await self._desk.context.writes.flush(
                self._desk.journal, self._desk.instruction
            )
        except VivaceError as error:
            failure = _failure(error)
        else:
            if written is not None:
                self._desk.entries += [written.entry.number] if written.entry else []
                number = written.entry.number if written.entry else 0
                self._desk.presenter.show(_written(number, changes, self._desk.context))
        for call in staged:
            self._settle(call, "failed" if failure else "done", failure or call.result)

    def _settle(self, call: Call, status: CallStatus, result: ToolResult) -> None:
        """Keep the answer to a call, and show it."""
        call.result = result
        self._desk.presenter.show(
            CallEnded(
                call_id=call.item.call_id,
                tool=call.item.name,
                status=status,
                summary=result.summary,
                output=result.output,
                seconds=round(time.monotonic() - call.began_s, 3) if call.began_s else 0.0,
            )
        )


async def _run(call: Call, context: ToolContext) -> ToolResult:
    """Run a tool. Whatever goes wrong becomes an output: the task goes on."""
    assert call.tool is not None
    tool = call.tool
    try:
        result = await tool.run(call.arguments, context, call.needs)
    except VivaceError as error:
        return _failure(error)
    except OSError as error:
        return ToolResult(f"Error: {error}", str(error.strerror), is_error=True)
    except Exception as error:
        log.error("tool %s failed", tool.name, exc_info=error)
        return ToolResult(f"Error: {tool.name} broke ({type(error).__name__}).", "broke", is_error=True)
    return ToolResult(bounded(result.output), result.summary, result.is_error)


def _failure(error: VivaceError) -> ToolResult:
    first = error.message.partition("\n")[0]
    return ToolResult(bounded(f"Error: {error.message} {error.hint}".strip()), first, is_error=True)


def _writing(staged: list[Call], context: ToolContext) -> WritingBegan:
    return WritingBegan(
        call_ids=[call.item.call_id for call in staged],
        files=[
            FileWriting(
                path=str(change.source.target),
                before_sha256=_hash(change.old_bytes),
                after_sha256=_hash(change.new_bytes),
            )
            for change in context.writes.changes()
        ],
    )


def _hash(data: bytes | None) -> str | None:
    return None if data is None else sha256_of(data)


def _written(entry: int, changes: list[Change], context: ToolContext) -> FilesWritten:
    diffs = [unified_diff(change, context.root) for change in changes]
    return FilesWritten(
        entry=entry,
        paths=[path for path, _ in diffs],
        diff=bounded("".join(diff for _, diff in diffs), 100_000),
    )
