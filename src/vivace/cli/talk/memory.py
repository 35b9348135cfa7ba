"""`vivace memory`: its arguments.

Owns the options. Does not own what they do (`remembering`).
"""

import click

user_option = click.option("--user", "for_all", is_flag=True, help="For all projects, not only this one.")


@click.group(invoke_without_command=True)
@click.pass_context
def memory(context: click.Context) -> None:
    """Show the notes and instruction files that the model reads here; add, search, edit, remove notes."""
    if context.invoked_subcommand is None:
        from vivace.cli.talk.remembering import list_memory
        from vivace.config import load_settings

        list_memory(load_settings())


@memory.command("add")
@click.argument("text", nargs=-1, required=True)
@user_option
def add_note(text: tuple[str, ...], for_all: bool) -> None:
    """Remember TEXT for this project."""
    from vivace.cli.talk.remembering import notes_here, say_note
    from vivace.config import load_settings

    say_note("Remembered", notes_here(load_settings()).add(" ".join(text), for_all=for_all))


@memory.command("search")
@click.argument("words", nargs=-1, required=True)
def search_notes(words: tuple[str, ...]) -> None:
    """List the notes that have all WORDS."""
    from vivace.cli.talk.remembering import list_notes, notes_here
    from vivace.config import load_settings

    list_notes(notes_here(load_settings()).search(" ".join(words)))


@memory.command("remove")
@click.argument("number", type=int)
def remove_note(number: int) -> None:
    """Forget note NUMBER."""
    from vivace.cli.talk.remembering import notes_here, say_note
    from vivace.config import load_settings

    say_note("Forgot", notes_here(load_settings()).remove(number))


@memory.command("edit")
@click.argument("number", type=int)
def edit_note(number: int) -> None:
    """Change note NUMBER in $EDITOR."""
    from vivace.cli.talk.remembering import edit_in_editor, notes_here, say_note
    from vivace.config import load_settings

    say_note("Changed", edit_in_editor(notes_here(load_settings()), number))
