"""`vivace init` when it runs: a draft, shown as a proposal, then written or not.

Owns the order of these steps on the command line. Does not own the text (`agent.memory.first_draft`), nor the
proposal's way to the disk (`agent.edits.flow`).
"""

import asyncio
import sys
from pathlib import Path

from vivace.agent.edits.flow import show_and_offer
from vivace.agent.events.base import Failed
from vivace.agent.memory.first_draft import INSTRUCTION, check_absent, draft, proposed, summarize
from vivace.agent.memory.instructions import project_root
from vivace.agent.model import Model
from vivace.agent.options import Approval
from vivace.cli.connection import with_model
from vivace.cli.edits.undoing import open_journal
from vivace.cli.installation.fetching import with_model_here
from vivace.cli.show.terminal import TerminalPresenter
from vivace.config import Settings
from vivace.errors import DONE, UsageError, VivaceError


def write_first_draft(settings: Settings, approval: Approval, *, is_described: bool) -> int:
    """Offer an AGENTS.md for the repository around this folder; return the exit code."""
    presenter = TerminalPresenter(verbose=False)
    try:
        root = project_root(Path.cwd())
        check_absent(root)
        if approval == "ask" and not sys.stdin.isatty():
            raise UsageError("There is no terminal to ask at.", "Use --yes to write, or --diff to only look.")
        summary = _summary(settings, root) if is_described else ""
        proposal = proposed(root, draft(root, summary))
        asyncio.run(show_and_offer(proposal, INSTRUCTION, approval, presenter, open_journal(settings)))
    except VivaceError as error:
        presenter.show(Failed.of(error))
        return error.exit_code
    return DONE


def _summary(settings: Settings, root: Path) -> str:
    async def work(model: Model) -> str:
        return await summarize(model, root)

    return with_model(with_model_here(settings), work)
