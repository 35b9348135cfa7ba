"""`vivace acp`: the agent for editors that speak the Agent Client Protocol. Its arguments.

Owns the options. Does not own what they start (`vivace.acp`).
"""

import click

from vivace.agent.effort import EFFORTS, Effort
from vivace.cli.options import model_option
from vivace.errors import DONE


@click.command()
@model_option
@click.option("--effort", type=click.Choice(EFFORTS), help="How hard to try at an edit.")
def acp(model: str | None, effort: Effort | None) -> int:
    """Speak the Agent Client Protocol on stdin and stdout, for Zed, JetBrains IDEs, Neovim and others.

    An editor starts it. How to set it up there: docs/guides/acp.md.
    """
    from vivace.acp.serving import serve
    from vivace.config import load_settings

    serve(load_settings().having(model=model), effort)
    return DONE
