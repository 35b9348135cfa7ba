"""`vivace completion SHELL`: what a shell needs to complete our commands and options.

Owns the command. The script is click's own.
"""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion of a shell, to be read by it.

    For bash: eval "$(vivace completion bash)" in ~/.bashrc; for zsh the same with its name in ~/.zshrc, below
    compinit; for fish: vivace completion fish | source, in ~/.config/fish/config.fish.
    """
    found = get_completion_class(shell)
    assert found is not None, "one of SHELLS"
    click.echo(found(context.find_root().command, {}, "vivace", "_VIVACE_COMPLETE").source())
