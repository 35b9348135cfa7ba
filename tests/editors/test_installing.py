"""The .vsix file, and `vivace editors` with an editor that notes what it is told."""

import json
import posixpath
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from tests import REPOSITORY
from vivace import __version__
from vivace.cli.main import app
from vivace.editors.installing import own_command
from vivace.editors.vsix import build_vsix
from vivace.errors import StartError, VivaceError

SOURCES = REPOSITORY / "editors" / "vscode"


@pytest.fixture
def vsix(tmp_path: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(build_vsix(tmp_path / "vivace.vsix", ["/opt/vivace", "--x"]))


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a `code` on the PATH. Return the file with the words that it was called with."""
    told = tmp_path / "told"
    code = tmp_path / "bin" / "code"
    code.parent.mkdir()
    lists = f'[ "$1" = --list-extensions ] && echo "vivace.vivace@{__version__}"\n'
    code.write_text(
        f'#!/bin/sh\necho "$@" >> {told}\n{lists}[ "$1" = --list-extensions ] || cp "$2" {told}.vsix\n'
    )
    code.chmod(0o755)
    monkeypatch.setenv("PATH", f"{code.parent}:/bin:/usr/bin")
    return told


def run(*words: str) -> str:
    done = CliRunner().invoke(app, ["editors", *words], catch_exceptions=True)
    if isinstance(done.exception, VivaceError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_it_holds_all_that_the_extension_loads(vsix: zipfile.ZipFile) -> None:
    """Every module that a module requires is there, with our version and the command line to run."""
    names = set(vsix.namelist())
    for name in names:
        if name.endswith(".js") and "/src/" in name:
            for wanted in re.findall(r'require\("(\.[\w./]+)"\)', vsix.read(name).decode()):
                assert posixpath.normpath(f"{posixpath.dirname(name)}/{wanted}.js") in names
    package = json.loads(vsix.read("extension/package.json"))
    assert package["version"] == __version__
    assert package["main"].removeprefix("./") in {name.removeprefix("extension/") for name in names}
    assert json.loads(vsix.read("extension/command.json")) == ["/opt/vivace", "--x"]


def test_its_manifest_says_what_the_package_says(vsix: zipfile.ZipFile) -> None:
    """Name, version and engine are the same in both, and every file has a content type."""
    package = json.loads(vsix.read("extension/package.json"))
    manifest = ElementTree.fromstring(vsix.read("extension.vsixmanifest"))
    identity = next(each for each in manifest.iter() if each.tag.endswith("Identity"))
    assert (identity.get("Id"), identity.get("Version")) == (package["name"], package["version"])
    assert package["engines"]["vscode"] in vsix.read("extension.vsixmanifest").decode()
    types = vsix.read("[Content_Types].xml").decode()
    assert {Path(name).suffix for name in vsix.namelist()} - {".xml"} <= set(re.findall(r'"(\.\w+)"', types))


def test_the_same_sources_make_the_same_bytes(tmp_path: Path) -> None:
    """Nothing of the time or the machine is in it but the command line."""
    one, other = (build_vsix(tmp_path / name, ["vivace"]).read_bytes() for name in ("a.vsix", "b.vsix"))
    assert one == other


def test_every_command_of_the_package_is_registered() -> None:
    """A command that is offered does something."""
    package = json.loads((SOURCES / "package.json").read_text())
    source = "".join(file.read_text() for file in (SOURCES / "src").rglob("*.js"))
    for command in package["contributes"]["commands"]:
        assert re.search(rf'(on|here|registerCommand)\("{re.escape(command["command"])}"', source), command


def test_install_gives_the_file_to_the_editor(editor: Path) -> None:
    """The editor on the PATH is told to install what was built."""
    assert "Installed" in run("install", "vscode")
    assert re.fullmatch(r"--install-extension \S+\.vsix --force\n", editor.read_text())
    with zipfile.ZipFile(f"{editor}.vsix") as file:
        assert json.loads(file.read("extension/command.json")) == own_command()


@pytest.mark.usefixtures("editor")
def test_list_shows_the_version_in_each_editor() -> None:
    """An editor is listed with the version of the extension in it."""
    assert re.search(rf"^code\s.*extension {re.escape(__version__)}$", run("list"), re.M)


def test_without_an_editor_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the way by hand, and ends as something that could not be started."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StartError, match="No editor") as error:
        run("install", "vscode")
    assert "build vscode" in error.value.hint
    with pytest.raises(VivaceError, match="no command 'nano'"):
        run("install", "vscode", "--with", "nano")
    assert "No editor" in run("list")


def test_an_editor_that_refuses_is_quoted(editor: Path) -> None:
    """What the editor said is in the error."""
    code = editor.parent / "bin" / "code"
    code.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 1\n")
    with pytest.raises(StartError, match="no space left"):
        run("install", "vscode")


def test_build_writes_the_file(tmp_path: Path) -> None:
    """`vivace editors build vscode` writes the .vsix where it is told; a place that cannot be is said."""
    target = tmp_path / "x.vsix"
    assert str(target) in run("build", "vscode", "--to", str(target))
    assert zipfile.is_zipfile(target)
    with pytest.raises(VivaceError, match="cannot be written"):
        run("build", "vscode", "--to", str(tmp_path / "no" / "x.vsix"))
