"""`vivace trust` at a terminal and without one."""

import json

from tests.e2e.terminal import Home, Terminal


def test_a_person_sees_what_would_run_and_says_yes(home: Home) -> None:
    """Then it is trusted until it changes or is taken back; without a terminal nothing is."""
    (home.work / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": {"command": "serve-one"}}}))
    refused = home.run("trust")
    assert (refused.code, "serve-one" in refused.err, "--yes" in refused.err) == (4, True, True)
    terminal = Terminal(home, "trust")
    terminal.wait_for("[y/N]")
    assert "serve-one" in terminal.shown
    terminal.type("y\n")
    assert terminal.end() == 0
    assert str(home.work) in home.run("trust", "--list").out
    assert "You trust" in home.run("trust").out
    (home.work / ".mcp.json").write_text("{}")
    assert home.run("trust").code == 4
    assert home.run("trust", "--yes").code == 0
    assert home.run("trust", "--revoke").code == 0
    assert home.run("trust", "--list").out == ""


def test_a_project_cannot_show_another_program(home: Home) -> None:
    """What hides a part of the line is written out, and every row has a mark of ours."""
    hostile = "touch X; sleep 2 #\rnpx -y @scope/server" + " " * 300 + "Trust it? [y/N] y\x1b[2K"
    servers = {"one": {"command": "sh", "args": ["-c", hostile]}}
    (home.work / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    terminal = Terminal(home, "trust")
    terminal.wait_for("wrote it. [y/N]")
    rows = terminal.shown.replace("\r\n", "\n").split("\n")
    asked = [row[6:] for row in rows if row.startswith(("    │ ", "    ┆ "))]
    assert f"sh -c '{hostile}'".replace("\r", "⟨CR⟩").replace("\x1b", "⟨ESC⟩") in "".join(asked)
    assert "\x1b" not in terminal.shown
    terminal.type("n\n")
    assert terminal.end() == 1


def test_an_argument_longer_than_a_file_name_is_no_traceback(home: Home) -> None:
    """It is shown whole, and can be trusted."""
    servers = {"one": {"command": "serve-one", "args": ["x" * 300, "/".join(["y" * 250] * 40)]}}
    (home.work / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    done = home.run("trust", "--yes")
    assert (done.code, "Traceback" in done.err) == (0, False)
    shown = "".join(row[6:] for row in done.err.split("\n") if row.startswith(("    │ ", "    ┆ ")))
    assert "x" * 300 in shown


def test_what_was_typed_before_the_question_is_no_answer(home: Home) -> None:
    """A y that was meant for something else trusts nothing."""
    (home.work / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": {"command": "serve-one"}}}))
    terminal = Terminal(home, "trust")
    terminal.type("y\n")
    terminal.wait_for("wrote it. [y/N]")
    terminal.type("n\n")
    assert terminal.end() == 1
    assert home.run("trust", "--list").out == ""
