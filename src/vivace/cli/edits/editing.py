"""`vivace edit` and `vivace ask` when they run: from the arguments to the agent's flow, with a presenter.

Owns which presenter is used, and that what is wrong with the request is said before a model is fetched or
woken. Does not own the flow (`agent.edits.flow`, `agent.ask`) nor what is shown (`show`).
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from vivace.agent.ask import read_question, run_ask
from vivace.agent.conversation.message.mentions import mentions_in, target_of
from vivace.agent.conversation.message.missing import check_mentions
from vivace.agent.edits.apply.journal import Entry
from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.flow import EditTask, run_edit
from vivace.agent.edits.repair.user_tests import AllowedTests, check_can_run
from vivace.agent.edits.scope import checked_instruction, read_scope
from vivace.agent.effort import Effort
from vivace.agent.events.base import Failed
from vivace.agent.memory.opening import memory_for
from vivace.agent.model import Model
from vivace.agent.options import Approval
from vivace.agent.presenter import Presenter
from vivace.agent.trust.settings import with_project_settings
from vivace.cli.connection import with_model
from vivace.cli.edits.undoing import open_journal
from vivace.cli.installation.fetching import with_model_here
from vivace.cli.show.json_lines import JsonPresenter
from vivace.cli.show.terminal import TerminalPresenter
from vivace.config import Settings
from vivace.errors import DONE, UsageError, VivaceError


def choose_presenter(*, as_json: bool, verbose: bool) -> Presenter:
    return JsonPresenter() if as_json else TerminalPresenter(verbose=verbose)


def edit_file(
    settings: Settings,
    presenter: Presenter,
    approval: Approval,
    effort: Effort,
    targets: Sequence[str],
    instruction: str,
) -> int:
    """Do one edit; return the exit code."""
    return _shown(presenter, lambda: _edit(settings, presenter, approval, effort, targets, instruction))


def answer_question(settings: Settings, presenter: Presenter, question: str, paths: Sequence[Path]) -> int:
    """Answer one question; return the exit code."""
    return _shown(presenter, lambda: _answer(settings, presenter, question, paths))


def _shown(presenter: Presenter, work: Callable[[], None]) -> int:
    try:
        work()
    except VivaceError as error:
        presenter.show(Failed.of(error))
        return error.exit_code
    return DONE


def _edit(
    settings: Settings,
    presenter: Presenter,
    approval: Approval,
    effort: Effort,
    targets: Sequence[str],
    instruction: str,
) -> None:
    parsed = [parse_target(target) for target in targets]
    instruction = checked_instruction(instruction)
    check_mentions(instruction, Path.cwd())
    if approval == "ask" and not sys.stdin.isatty():
        raise UsageError("There is no terminal to ask at.", "Use --yes to write, or --diff to only look.")
    journal = open_journal(settings)  # before the file is read: an edit that was cut short is finished first
    to_write = approval != "never"
    scopes = tuple(read_scope(each, to_write=to_write, instruction=instruction) for each in parsed)
    settings = with_project_settings(settings, Path.cwd())
    tests = AllowedTests(settings.test_command, Path.cwd()) if settings.test_command else None
    if tests:
        asyncio.run(check_can_run(tests, [scope.source.target for scope in scopes]))
    settings = with_model_here(settings)  # only now: what is wrong with the request needs no model
    memory = memory_for(settings, Path.cwd(), settings.model)
    task = EditTask(scopes, instruction, approval, effort, tests, memory)

    async def work(model: Model) -> Entry | None:
        return await run_edit(task, model, presenter, journal)

    with_model(settings, work, presenter)


def _answer(settings: Settings, presenter: Presenter, question: str, paths: Sequence[Path]) -> None:
    check_mentions(question, Path.cwd())
    named = [target_of(each, Path()).path for each in mentions_in(question, Path())]
    paths = [*paths, *(path for path in named if path not in paths)]
    read_question(question, paths)  # what is wrong with it is said before the model is there
    settings = with_model_here(settings)
    asked = read_question(question, paths, memory_for(settings, Path.cwd(), settings.model))

    async def work(model: Model) -> None:
        await run_ask(asked, model, presenter)

    with_model(settings, work, presenter)
