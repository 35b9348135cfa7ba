"""One `vivace edit` as a person or a program experiences it.

Owns what is shown and asked, and when the file is written. The edit itself comes as events from
`agent.edits.edit.propose`; the file is written by the journal, so that every edit can be taken back.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.check.verify import verify
from vivace.agent.edits.edit import (
    Aim,
    Located,
    Proposal,
    Writing,
    checked_instruction,
    propose,
    take_aim,
    whole_diff,
)
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.find.units import Unit
from vivace.agent.model import Model
from vivace.cli import waterfall
from vivace.cli.connection import with_model, with_model_here
from vivace.cli.screen import Screen
from vivace.cli.spinner import Spinner
from vivace.config import Settings
from vivace.errors import DONE, EditRejected, UsageError, VivaceError


@dataclass(frozen=True)
class Mode:
    may_write: bool  # without asking
    asks: bool
    as_json: bool
    verbose: bool


class Editing:
    def __init__(self, settings: Settings, mode: Mode) -> None:
        self._settings = settings
        self._mode = mode
        self._screen = Screen()
        self._first_token_ms = 0.0

    def run(self, target_text: str, instruction: str) -> int:
        try:
            return self._run(target_text, instruction)
        except VivaceError as error:
            if not self._mode.as_json:
                raise
            self._emit("error", code=error.code, message=error.message, hint=error.hint)
            return error.exit_code

    def _run(self, target_text: str, instruction: str) -> int:
        target = parse_target(target_text)
        instruction = checked_instruction(instruction)
        if self._mode.asks and not sys.stdin.isatty():
            raise UsageError("There is no terminal to ask at.", "Use --yes to write, or --diff to only look.")
        aim = take_aim(target, to_write=self._mode.may_write or self._mode.asks)
        settings = with_model_here(self._settings)  # only now: what is wrong with the request needs no model
        began = time.perf_counter()

        async def work(model: Model) -> tuple[Proposal, Model]:
            return await self._watch(model, aim, instruction, began), model

        proposal, model = with_model(settings, work)
        return self._conclude(proposal, model, instruction)

    async def _watch(self, model: Model, aim: Aim, instruction: str, began: float) -> Proposal:
        """Show the edit as it comes; return what it came to."""
        proposal, spinner = None, Spinner(self._screen)
        spinner.wait_for("Choosing the part to change")
        try:
            async for event in propose(model, aim, instruction):
                spinner.stop()
                match event:
                    case Located(unit=unit, was_ranked=was_ranked):
                        self._show_unit(aim.source.path, unit, was_ranked)
                        spinner.wait_for(f"Reading {unit.qualified_name}")
                    case Writing(rows=rows, delta=delta):
                        self._first_token_ms = self._first_token_ms or (time.perf_counter() - began) * 1e3
                        self._show_rows(rows, delta)
                    case Proposal():
                        proposal = event
        finally:
            spinner.stop()
            self._screen.end_live()
        assert proposal is not None
        return proposal

    def _show_unit(self, path: Path, unit: Unit, was_ranked: bool) -> None:
        name, lines = unit.qualified_name, unit.lines_text
        if self._mode.as_json:
            self._emit("located", unit=name, lines=lines, by="model" if was_ranked else "user")
        else:
            self._screen.bold(f"{path}:{lines}  {name}")

    def _show_rows(self, rows: Any, delta: str) -> None:
        if self._mode.as_json:
            self._emit("delta", text=delta)
        else:
            self._screen.draw_live(rows)

    def _conclude(self, proposal: Proposal, model: Model, instruction: str) -> int:
        self._show_proposal(proposal)
        self._refuse_bad(proposal)
        accepted = self._accepted(proposal, instruction) if self._mode.asks else proposal
        began = time.perf_counter()
        written = False
        if accepted is not None and (self._mode.may_write or self._mode.asks):
            Journal(self._settings.state_dir / "undo").apply(
                accepted.source, accepted.new_bytes, instruction, accepted.unit.qualified_name
            )
            written = True
        apply_ms = (time.perf_counter() - began) * 1e3 if written else None
        self._show_end(proposal, model, written=written, apply_ms=apply_ms)
        return DONE

    def _show_proposal(self, proposal: Proposal) -> None:
        if self._mode.as_json:
            diff = "".join(f"{row.text if row.tag == '@' else row.tag + row.text}\n" for row in proposal.rows)
            self._emit("proposal", diff=diff, problems=proposal.problems)
        else:
            self._screen.show_diff(proposal.rows)

    def _refuse_bad(self, proposal: Proposal) -> None:
        if proposal.problems:
            raise EditRejected(
                "The model's answer cannot be used: " + " ".join(proposal.problems),
                "Nothing was written. Say it in other words, or name the part: PATH:NAME.",
            )
        if not proposal.rows:
            raise EditRejected(
                "The model changed nothing.", "Say more exactly what to change, or name the part: PATH:NAME."
            )

    def _accepted(self, proposal: Proposal, instruction: str) -> Proposal | None:
        """Ask until there is a yes or a no; `e` opens the proposal in an editor and asks again."""
        while True:
            answer = input("Apply? [y]es, [n]o, [e]dit: ").strip().lower()
            if answer in ("y", "yes"):
                return proposal if proposal.changes_bytes else None
            if answer in ("n", "no"):
                return None
            if answer in ("e", "edit"):
                proposal = _edited(proposal, instruction)
                self._screen.show_diff(proposal.rows)
                if not proposal.changes_bytes:
                    self._screen.say("There is nothing to change: this is the file as it is.")
                for problem in proposal.problems:
                    self._screen.say(f"Careful: {problem}")

    def _show_end(self, proposal: Proposal, model: Model, *, written: bool, apply_ms: float | None) -> None:
        turns = model.waterfalls
        if self._mode.as_json:
            stages = [msgspec.to_builtins(turn) for turn in turns]
            self._emit("waterfall", model=model.name, first_token_ms=self._first_token_ms, turns=stages)
            self._emit("written" if written else "not_written", path=str(proposal.source.path))
            return
        if written:
            self._screen.say(f"Wrote {proposal.source.path} (`vivace undo` takes it back).")
        elif self._mode.asks:
            self._screen.say("Nothing written.")
        self._screen.dim(waterfall.one_line(model.name, turns, self._first_token_ms))
        if self._mode.verbose:
            names = [*["locate"] * (len(turns) - 1), "rewrite"]
            for row in waterfall.table(list(zip(names, turns, strict=True)), self._first_token_ms, apply_ms):
                self._screen.dim(row)

    def _emit(self, kind: str, **fields: Any) -> None:
        sys.stdout.write(msgspec.json.encode({"type": kind, **fields}).decode() + "\n")
        sys.stdout.flush()


def _edited(proposal: Proposal, instruction: str) -> Proposal:
    """The proposal as the user left it in an editor."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / proposal.source.path.name
        file.write_bytes(proposal.new_bytes)
        try:
            subprocess.run([*shlex.split(editor), str(file)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise UsageError(
                f"The editor {editor} failed: {error}", "Set EDITOR to one that works."
            ) from error
        new_bytes = file.read_bytes()
    source = proposal.source
    problems = verify(source, language_for(source.path), proposal.unit, new_bytes, instruction)
    return replace(proposal, new_bytes=new_bytes, rows=whole_diff(source, new_bytes), problems=problems)
