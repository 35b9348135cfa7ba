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
