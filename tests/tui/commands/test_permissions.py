"""Permission modes in the terminal: a key that cycles them, a command that explains them."""

from pathlib import Path

from tests.tui.conftest import Open


async def test_shift_tab_goes_through_the_modes(open_screen: Open) -> None:
    """The status line shows each mode and what it means, and comes back to the first."""
    async with open_screen(size=(140, 24)) as screen:
        await screen.ready()
        assert "workspace" in screen.status
        for mode, words in (
            ("ask", "asks before every change"),
            ("read-only", "asks before it writes"),
            ("full", "writes anywhere"),
            ("workspace", "writes files here"),
        ):
            await screen.press("shift+tab")
            await screen.sees(f"· {mode} ·", words)


async def test_permissions_says_what_asks_and_who_says_so(open_screen: Open, folder: Path) -> None:
    """The project's own rules are shown, and what they tighten is refused."""
    (folder / ".vivace").mkdir()
    (folder / ".vivace" / "permissions.toml").write_text('asking = "never"\nprotected = ["secrets"]\n')
    async with open_screen(size=(100, 40)) as screen:
        await screen.ready()
        await screen.say("/permissions full")
        await screen.sees(
            "mode      full",
            "asking never, protects secrets",
            "write a file elsewhere        no",
            "write a file here             yes",
        )
        assert screen.app.session.mode.name == "full"


async def test_an_unknown_mode_changes_nothing(open_screen: Open) -> None:
    """The known ones are named."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("/permissions wild")
        await screen.sees("There is no permission mode 'wild'.", "workspace, ask, read-only, full")
        assert screen.app.session.mode.name == "workspace"
