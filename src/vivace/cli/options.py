"""Options that commands of several rooms have: their names and help, written once.

Does not own those of tasks (`task_options`).
"""

import click

model_option = click.option(
    "--model", help="A name from `vivace models`, a .gguf file, or a folder of safetensors."
)
test_option = click.option(
    "--test",
    "test_command",
    metavar="COMMAND",
    help="Run this over a copy of the folder with the change, in the sandbox; prefer an answer that passes.",
)
verbose_option = click.option("--verbose", is_flag=True, help="Show every stage of the time.")
