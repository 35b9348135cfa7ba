"""The work of one turn: decide what the message is, then answer it or edit, as often as a steer asks for it.

Owns the running task, how a steer and a stop reach it, and the one retry with a new server. Does not own the
turn's beginning and end (`conversation`), what is sent (`requests`), nor what is shown in it (`answering`,
`editing`).
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.message.intent import decide_intent
from vivace.agent.conversation.message.mentions import mentions_in
from vivace.agent.conversation.message.prompt import (
    Asked,
    content_of,
    previous_response,
    told_memory,
    turns_since_summary,
)
from vivace.agent.conversation.talk import Offer
from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.conversation.turns import compaction
from vivace.agent.conversation.turns.answering import Answering, Ending
from vivace.agent.conversation.turns.editing import answer_to_places, edit_in_turn
from vivace.agent.conversation.turns.requests import TurnRequests
from vivace.agent.conversation.turns.tool_turn import ToolRules, ToolTurn, open_tool_turn
from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.events.talk import Compacted, CompactionStarted
from vivace.agent.events.task import ServersOpened
from vivace.agent.events.turn import (
    AttemptAbandoned,
    CodeRead,
    HistoryReplayed,
    IntentDecided,
    TaskStepped,
    TurnKind,
)
from vivace.agent.loop.opening import can_call_tools, recall
from vivace.agent.mcp.opening import ServerPool, servers_without_asking
from vivace.agent.mcp.tool import McpTool
from vivace.agent.options import Approval
from vivace.agent.permissions.policy import Policy
from vivace.agent.presenter import Presenter
from vivace.errors import ContextOverflow, RequestRefused, ServerGone, UsageError

NOT_KNOWN = "previous_response_not_found"


class TurnWork:
    def __init__(
        self,
        history: History,
        connection: Connection,
        presenter: Presenter,
        journal: Journal,
        files: Files = DISK,
    ) -> None:
        self._history = history
        self._connection = connection
        self._presenter = presenter
        self._journal = journal
        self._files = files
        self.requests = TurnRequests(history, connection, files)
        self._task: asyncio.Task[Ending] | None = None
        self._answering: Answering | None = None
        self._tool_turn: ToolTurn | None = None  # of a model that can call tools
        self._rules = ToolRules()
        self._servers = ServerPool(Path(history.folder))
        self._servers_shown: ServersOpened | None = None
        self._steer = ""  # for work that cannot be steered: it is begun again with it
        self._is_stopping = False
        self._late: list[str] = []  # steers that came when everything was said
        self.approval: Approval = "ask"

    # ---- from outside -----------------------------------------------------------------------------

    async def steer(self, text: str) -> bool:
        """Turn the work around. Return False if it is too late for that."""
        if self._task is None or self._is_stopping:
            return False
        if self._tool_turn:
            return await self._tool_turn.steer(text)
        if self._answering and self._answering.is_running:
            try:
                await self._answering.steer(text)
            except RequestRefused:
                return False
            return True
        self._steer = "\n".join(filter(None, [self._steer, text]))
        self._task.cancel()
        return True

    def stop(self) -> None:
        """End the work and keep what there is."""
        if self._task is None or self._is_stopping:
            return
        self._is_stopping = True
        if self._tool_turn:
            self._tool_turn.stop()
        elif self._answering and self._answering.is_running:
            self._answering.stop()
        else:
            self._task.cancel()

    def answer_now(self) -> None:
        """Let a model that thinks answer now. No effect on anything else."""
        if self._answering and self._answering.is_running:
            self._answering.answer_now()

    def cancel(self) -> None:
        """End the work without waiting for the answer's own end."""
        if self._task is not None:
            self._is_stopping = True
            self._task.cancel()

    def late_steers(self) -> list[str]:
        """Return the steers that came too late, the last one first."""
        late, self._late = self._late[::-1], []
        return late

    # ---- the work ---------------------------------------------------------------------------------

    async def run(
        self,
        text: str,
        mentions: tuple[str, ...],
        kind: TurnKind | None,
        offer: Offer | None = None,
    ) -> Ending:
        """Do the work to its end; once more if the server went away, again if it was steered.

        With an `offer` that is made, and no model is asked.
        """
        has_retried = False
        try:
            while True:
                self._task = asyncio.create_task(
                    self._make(offer) if offer else self._do(text, mentions, kind)
                )
                try:
                    return await self._task
                except asyncio.CancelledError:
                    if self._is_stopping and not _is_cancelled_from_outside():
                        return Ending("stopped", self._history.turns[-1].response_id)
                    if not self._steer:
                        raise
                    steer, self._steer = self._steer, ""
                    text, kind = f"{text}\n{steer}", self._history.turns[-1].kind
                    also = mentions_in(steer, self.requests.folder, self._files)
                    mentions = tuple(dict.fromkeys((*mentions, *also)))
                    self._abandon("steered", steer)
                except ServerGone:
                    if has_retried:
                        raise
                    has_retried = True
                    self._abandon("server_gone", "")
                    await self._connection.renew()
        finally:
            self._late += [self._steer] if self._steer else []
            self._task, self._answering, self._steer, self._is_stopping = None, None, "", False

    async def _do(self, text: str, mentions: tuple[str, ...], kind: TurnKind | None) -> Ending:
        asked_at_s = time.perf_counter()
        await self._files.refresh(self.requests.paths(mentions))
        if self.uses_tools:
            return await self._work_with_tools(text, mentions)
        if answered := answer_to_places(self._history, text):
            text, mentions, kind = answered.text, answered.mentions, "edit"
        model = await self._connection.model(self._history.model)
        intent = IntentDecided(kind, "user") if kind else await decide_intent(model, text)
        self._presenter.show(intent)
        if intent.kind == "question":
            return await self._answer(text, mentions)
        await edit_in_turn(
            self._history,
            model,
            self._presenter,
            self._journal,
            text=text,
            mentions=mentions,
            approval=self.approval,
            effort=self.requests.effort,
            test_command=self._connection.settings.test_command,
            memory=self.requests.memory,
            files=self._files,
            index=self.requests.index,
            asked_at_s=asked_at_s,
        )
        return Ending("completed")

    async def _make(self, offer: Offer) -> Ending:
        self._presenter.show(IntentDecided("edit", "user"))
        await asyncio.to_thread(self._journal.heal)
        await offer(self._presenter, self._journal)
        return Ending("completed")

    @property
    def uses_tools(self) -> bool:
        """Return whether the model of this conversation works on messages with tools."""
        return can_call_tools(self._connection.settings, self._history.model)

    async def _work_with_tools(self, text: str, mentions: tuple[str, ...]) -> Ending:
        self._presenter.show(IntentDecided("task", "model"))
        turn = self._history.turns[-1]
        recalled = await asyncio.to_thread(recall, self._connection.settings, self.requests.folder, text)
        is_new = not previous_response(self._history, of_task=True)
        untold = recalled.untold(told_memory(self._history, is_new=is_new))
        if untold.used().in_words:
            self._presenter.show(untold.used())
        message = content_of(text, mentions, self.requests.folder, files=self._files)
        parts = [untold.rules, untold.reminder, *turn.notes, message]
        content = "\n\n".join(filter(None, parts))
        self._tool_turn = await open_tool_turn(
            self._history,
            self._connection,
            self._presenter,
            self._journal,
            self._rules,
            content=content,
            has_strangers_text=recalled.has_strangers_text,
            retold=await self.requests.retold_turns(content),
            files=self._files,
            foreign_tools=await self._foreign_tools(),
        )
        try:
            return await self._tool_turn.run()
        finally:
            self._tool_turn = None

    async def _foreign_tools(self) -> list[McpTool]:
        """Return the tools of MCP servers, which run as long as the conversation. Say what is new of them.

        Where nobody may be asked no call would be allowed, so none is started.
        """
        if self.policy.asking == "never":
            return []
        named = await asyncio.to_thread(
            servers_without_asking, self._connection.settings, self.requests.folder
        )
        opened = await self._servers.use(named.servers)
        step = opened.step(named.problems)
        if step != (self._servers_shown or ServersOpened()):
            self._presenter.show(TaskStepped(step, self.requests.folder))
        self._servers_shown = step
        return opened.tools

    async def close(self) -> None:
        """End the MCP servers of this conversation."""
        await self._servers.close()

    @property
    def policy(self) -> Policy:
        """Return what calls of tools may do by themselves."""
        return self._rules.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._rules.policy = policy
        if self._tool_turn:
            self._tool_turn.use_policy(policy)

    async def _answer(self, text: str, mentions: tuple[str, ...]) -> Ending:
        asked = await self.requests.asked(text, mentions)
        content = asked.content(
            self.requests.folder, self._files
        )  # what is wrong with its files is raised here
        if asked.code:
            self._presenter.show(CodeRead(asked.code))
        window = await self._connection.window_tokens(self._history.model) if self._can_compact else 0
        if compaction.is_due(self._history, content, window):
            await self.compact("window")
        if not previous_response(self._history):
            return await self._answer_anew(asked, content)
        try:
            return await self._answer_to(asked)
        except RequestRefused as error:
            if error.code == NOT_KNOWN:
                return await self._answer_anew(asked, content)
            if error.code != ContextOverflow.code or not self._can_compact:
                raise
        await self.compact("window")
        return await self._answer_to(asked)

    async def _answer_anew(self, asked: Asked, content: str) -> Ending:
        """Answer where the server has no response to go on from: tell it the latest turns that fit."""
        turns = await self.requests.retold_turns(content)
        while True:
            said = turns_since_summary(self._history)
            if said:
                self._presenter.show(HistoryReplayed(turns[0].number if turns else 0, len(said) - len(turns)))
            try:
                return await self._answer_to(asked, turns)
            except RequestRefused as error:
                if error.code != ContextOverflow.code or not turns:
                    raise
                turns = turns[(len(turns) + 1) // 2 :]

    async def _answer_to(self, asked: Asked, retold: Sequence[Turn] | None = None) -> Ending:
        used = self.requests.untold(asked, retold).memory.used()
        if used.in_words:
            self._presenter.show(used)
        request = self.requests.body(asked, retold)
        self._answering = Answering(await self._connection.client(), self._presenter)
        try:
            return await self._answering.run(request, self._history.id)
        finally:
            self._late += self._answering.given_back
            self._answering = None

    # ---- the prompt -------------------------------------------------------------------------------

    @property
    def _can_compact(self) -> bool:
        """Return whether anything was said since the last summary."""
        return bool(turns_since_summary(self._history))

    async def compact(self, why: Literal["asked", "window"]) -> Compacted:
        """Put a summary in place of what was said so far."""
        if not self._can_compact:
            raise UsageError("There is nothing to compact yet.", "Say something first.")
        said = turns_since_summary(self._history)
        self._presenter.show(CompactionStarted(why))
        summary = await self._summary()
        compacted = Compacted(said[-1].number, summary, max(turn.total_tokens for turn in said))
        self._presenter.show(compacted)
        return compacted

    async def _summary(self) -> str:
        """Let the model summarise what it has in its log, or the latest turns if the server lost that."""
        client, asked = await self._connection.client(), compaction.compact_prompt()

        async def summarize(body: dict[str, Any]) -> str:
            return await compaction.summarize(client, self._history, body, lane=self._history.id)

        try:
            return await summarize(self.requests.body(Asked(asked)))
        except RequestRefused as error:
            if error.code != NOT_KNOWN:
                raise
        return await summarize(self.requests.body(Asked(asked), await self.requests.retold_turns(asked)))

    def _abandon(self, why: Literal["steered", "server_gone"], steer: str) -> None:
        attempts = self._history.turns[-1].attempts
        if attempts and not attempts[-1].is_abandoned:
            self._presenter.show(AttemptAbandoned(len(attempts[-1].text), why, steer))


def _is_cancelled_from_outside() -> bool:
    """Return whether whoever waits for the turn was cancelled, and not only the turn's own task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
