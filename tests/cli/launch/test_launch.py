"""`vivace launch` from the command line: what it would set, and which clients it says are here."""

import json
import os
import shlex
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vivace.cli.launch.clients import AIDER, CLAUDE, CLIENTS, CODEX, CONTINUE, OPENCODE, QWEN, Client
from vivace.cli.launch.listing import not_installed
from vivace.cli.launch.place import Place, choose_prompt
from vivace.cli.launch.plan import Launch, LaunchRequest, planned
from vivace.cli.main import app
from vivace.config import Settings
from vivace.errors import COULD_NOT_START, StartError

SMALL, LARGE = 1.0, 18.0  # GB of weights
STRANGE = 'a "model" $with \\ all.gguf'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a PATH without any client."""
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("VIVACE_DEVICE", "cpu")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), standalone_mode=False)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda client: client.name)
def test_what_would_be_set_is_shown(client: Client, home: Path) -> None:
    """Variables, files and the command with the user's own arguments; no key is made, nothing is written."""
    done = run("launch", client.name, "--model", "smollm2-135m", "--print", "--", "-x", "a b")
    assert done.exception is None
    lines = done.stdout.splitlines()
    program, *words = shlex.split(lines[-1])
    assert (program, words[-2:]) == (client.program, ["-x", "a b"])
    assert "http://127.0.0.1:8377" in done.stdout
    assert "smollm2-135m" in done.stdout
    assert "(made for this launch, and removed at its end)" in done.stdout
    assert "$" not in done.stdout, "nothing is left to be filled"
    assert not (home / "state").exists()


@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda client: client.name)
def test_a_missing_client_says_how_to_install_it(client: Client) -> None:
    """One line, and the exit code of what could not be started."""
    done = run("launch", client.name)
    assert isinstance(done.exception, StartError)
    assert done.exception.exit_code == COULD_NOT_START
    assert done.exception.message == f"{client.title} is not installed: {client.install}"
    assert done.exception.hint == ""
    assert client.install.endswith(f" {client.package}")


def test_the_list_says_what_is_here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client on the PATH with its version, all others with the command that installs them."""
    bin_folder = home / "bin"
    bin_folder.mkdir()
    program = bin_folder / "codex"
    program.write_text("#!/bin/sh\necho codex-cli 9.8.7\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    lines = dict(line.split(maxsplit=1) for line in run("launch").stdout.splitlines())
    assert list(lines) == list(CLIENTS)
    assert lines.pop("codex") == f"Codex CLI 9.8.7, {program}; tested with 0.166.0"
    assert lines == {name: not_installed(CLIENTS[name]) for name in lines}


@pytest.mark.parametrize(
    ("place", "prompt"),
    [
        (Place(16_384, 60, SMALL), "bare"),
        (Place(131_072, 3000, SMALL), "bare"),
        (Place(131_072, 3000, 5.0), "tools"),
        (Place(131_072, 3000, LARGE), "full"),
        (Place(32_768, 3000, LARGE), "tools"),
        (Place(131_072, 200, LARGE), "tools"),
        (Place(131_072, 60, LARGE), "bare"),
        (Place(1024, 10, 0.0), "bare"),
    ],
)
def test_model_and_machine_choose_the_prompt(place: Place, prompt: str) -> None:
    """The longest that half the window holds, that is read within 30 s, and that the model can use."""
    assert choose_prompt(CLAUDE, place).name == prompt


def test_a_prompt_can_be_named() -> None:
    """The user knows better; a client without such a prompt says which it has."""
    line = run("launch", "claude", "--print", "--prompt", "tools").stdout.splitlines()[-1]
    assert line.endswith("--tools Read,Edit,Write,Bash")
    line = run("launch", "aider", "--print", "--prompt", "diff").stdout.splitlines()[-1]
    assert line.endswith("--edit-format diff")
    failed = run("launch", "codex", "--print", "--prompt", "bare").exception
    assert "Codex CLI has no prompt 'bare'; it has: full." in str(failed)


def test_names_cannot_break_out_of_a_text(settings: Settings, tmp_path: Path) -> None:
    """A model's name with quotes and signs arrives in JSON, TOML and YAML as it is."""
    odd = settings.having(model=STRANGE)
    assert json.loads(plan_of(CLAUDE, odd, tmp_path).files[tmp_path / "settings.json"])["model"] == STRANGE
    config = json.loads(plan_of(OPENCODE, odd, tmp_path).variables["OPENCODE_CONFIG_CONTENT"])
    assert config["model"] == f"vivace/{STRANGE}"
    assert list(config["provider"]["vivace"]["models"]) == [STRANGE]
    yaml = plan_of(CONTINUE, odd, tmp_path).files[tmp_path / "config.yaml"].splitlines()
    assert [json.loads(line.partition(": ")[2]) for line in yaml if "  model:" in line] == [STRANGE]
    words = plan_of(CODEX, odd, tmp_path).command
    settings_of_codex = [tomllib.loads(words[at + 1]) for at, word in enumerate(words) if word == "-c"]
    assert settings_of_codex[0] == {"model": STRANGE}
    assert plan_of(QWEN, odd, tmp_path).variables["OPENAI_MODEL"] == STRANGE
    assert plan_of(AIDER, odd, tmp_path).command[2] == f"openai/{STRANGE}"


def test_a_proxy_is_not_asked_for_the_server(settings: Settings, tmp_path: Path) -> None:
    """Loopback needs none; variables of the user's that would count for more are gone."""
    plan = plan_of(CLAUDE, settings, tmp_path)
    told = plan.environment({"NO_PROXY": "a.example", "ANTHROPIC_API_KEY": "theirs", "LANG": "C"})
    assert (told["NO_PROXY"], told["no_proxy"]) == ("a.example,127.0.0.1", "127.0.0.1")
    assert "ANTHROPIC_API_KEY" not in told
    assert (told["LANG"], told["ANTHROPIC_AUTH_TOKEN"]) == ("C", "vv_key")


def test_the_key_is_on_no_command_line(settings: Settings, tmp_path: Path) -> None:
    """Every user of the machine sees command lines."""
    for client in CLIENTS.values():
        plan = plan_of(client, settings, tmp_path)
        assert "vv_key" not in " ".join(plan.command)
        assert "vv_key" in " ".join([*plan.variables.values(), *plan.files.values()])


def plan_of(client: Client, settings: Settings, folder: Path) -> Launch:
    asked = LaunchRequest(settings, client, client.program, Place(16_384, 60, SMALL), client.prompts[-1], ())
    return planned(asked, 8377, "vv_key", folder)
