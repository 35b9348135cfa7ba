"""`vivace trust`: its arguments.

Owns the options. Does not own the question (`trusting`) nor what is trusted (`agent.trust`).
"""

import click


@click.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False))
@click.option("--yes", is_flag=True, help="Trust it without being asked, as it is now.")
@click.option("--list", "as_list", is_flag=True, help="Show the folders that you trust.")
@click.option("--revoke", is_flag=True, help="Trust FOLDER no longer.")
def trust(folder: str | None, yes: bool, as_list: bool, revoke: bool) -> int:
    """Show what a project's configuration would run, and trust it or not.

    Needed for `.mcp.json`, `.vivace/*.toml` and `.vivace/workflows` of FOLDER, or of this folder. A file that
    changes later asks again.
    """
    from pathlib import Path

    from vivace.cli.tasks.trusting import ask_and_tell, list_trusted, revoke_trust
    from vivace.config import load_settings
    from vivace.errors import UsageError

    if yes + as_list + revoke > 1:
        raise UsageError("Only one of --yes, --list and --revoke can be used.", "See `vivace trust --help`.")
    settings, where = load_settings(), Path(folder or ".")
    if as_list:
        return list_trusted(settings)
    return revoke_trust(settings, where) if revoke else ask_and_tell(settings, where, yes=yes)
