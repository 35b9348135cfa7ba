"""A project's configuration is used only as its user has seen it."""

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.mcp.servers import PROJECT_FILE as MCP_FILE
from vivace.agent.mcp.servers import project_servers, user_servers
from vivace.agent.permissions.policy import PROJECT_FILE as PERMISSIONS_FILE
from vivace.agent.trust.describe import described
from vivace.agent.trust.project import MAX_BYTES, ProjectFiles, read_project
from vivace.agent.trust.settings import FILE, project_settings, with_project_settings
from vivace.agent.trust.store import TrustStore, trusted_project
from vivace.config import Settings
from vivace.errors import APPROVAL_NEEDED, ConfigError, ProjectNotTrusted


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".vivace" / "workflows").mkdir(parents=True)
    return root


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "state")


def mcp(root: Path, *command: str, **more: object) -> None:
    server = {"command": command[0], "args": list(command[1:]), **more}
    (root / MCP_FILE).write_text(json.dumps({"mcpServers": {"one": server}}))


class TestTrust:
    def test_a_project_without_configuration_needs_none(self, root: Path, tmp_path: Path) -> None:
        """One that only tightens has none either."""
        (root / PERMISSIONS_FILE).write_text('access = "read-only"\n')
        assert not trusted_project(tmp_path / "state", root)

    def test_trust_is_for_what_was_shown(self, root: Path, store: TrustStore, tmp_path: Path) -> None:
        """Any file that changes, comes or goes asks again, and the old content is trusted again."""
        mcp(root, "npx", "server")
        with pytest.raises(ProjectNotTrusted, match="not trusted yet") as refused:
            trusted_project(tmp_path / "state", root)
        assert refused.value.exit_code == APPROVAL_NEEDED
        before = read_project(root)
        store.trust(before)
        assert trusted_project(tmp_path / "state", root).files == before.files
        changes = {
            MCP_FILE: "{}",
            FILE: 'test_command = "make"',
            ".vivace/other.toml": "",
            ".vivace/workflows/release.toml": "x = 1",
            ".vivace/workflows/notes.md": "x",
        }
        for name, text in changes.items():
            old = (root / name).read_bytes() if (root / name).exists() else None
            (root / name).write_text(text)
            with pytest.raises(ProjectNotTrusted, match="has changed"):
                trusted_project(tmp_path / "state", root)
            if old is None:
                (root / name).unlink()
            else:
                (root / name).write_bytes(old)
        assert store.is_trusted(read_project(root))

    def test_trust_is_for_one_folder(self, root: Path, store: TrustStore, tmp_path: Path) -> None:
        """The same files elsewhere are another project, and a link to the folder is the same one."""
        mcp(root, "npx")
        store.trust(read_project(root))
        other = tmp_path / "other"
        other.mkdir()
        (other / MCP_FILE).write_bytes((root / MCP_FILE).read_bytes())
        (tmp_path / "link").symlink_to(root)
        assert not store.is_trusted(read_project(other))
        assert store.is_trusted(read_project(tmp_path / "link"))

    def test_a_program_of_the_project_is_part_of_it(self, root: Path, store: TrustStore) -> None:
        """A script that a task has edited since does not run by itself."""
        (root / "server.py").write_text("print()")
        mcp(root, "python3", "./server.py", "/etc/passwd", "../up", "")
        store.trust(read_project(root))
        assert read_project(root).programs.keys() == {"server.py"}
        (root / "server.py").write_text("evil()")
        assert not store.is_trusted(read_project(root))

    def test_what_is_used_is_what_was_read(self, root: Path, store: TrustStore) -> None:
        """A file that changes between the look and the yes is not what is trusted."""
        mcp(root, "good")
        project = read_project(root)
        mcp(root, "evil")
        store.trust(project)
        assert project_servers(project.files[MCP_FILE])[0].server.command == "good"
        assert not store.is_trusted(read_project(root))

    def test_trust_is_taken_back(self, root: Path, store: TrustStore) -> None:
        """And the second time there is nothing to take."""
        mcp(root, "npx")
        store.trust(read_project(root))
        assert list(store.all()) == [str(root)]
        assert (store.revoke(root), store.revoke(root)) == (True, False)
        assert not store.is_trusted(read_project(root))

    def test_a_damaged_store_trusts_nobody(self, root: Path, store: TrustStore, tmp_path: Path) -> None:
        """And is whole again with the next yes. Nobody else reads it."""
        mcp(root, "npx")
        file = tmp_path / "state" / "trust.json"
        file.parent.mkdir()
        for text in (b"\xff{", b"[]", b'{"a": 1}'):
            file.write_bytes(text)
            assert not store.is_trusted(read_project(root))
        store.trust(read_project(root))
        assert store.is_trusted(read_project(root))
        assert file.stat().st_mode & 0o77 == 0


class TestReading:
    def test_what_is_no_plain_file_is_an_error(self, root: Path, tmp_path: Path) -> None:
        """A pipe to wait at, a link to a secret, a folder, or too many bytes."""
        (tmp_path / "secret").write_text("hush")
        file = root / MCP_FILE
        for make in (
            lambda: os.mkfifo(file),
            lambda: file.symlink_to(tmp_path / "secret"),
            lambda: file.mkdir(),
            lambda: file.write_bytes(b"x" * (MAX_BYTES + 1)),
        ):
            make()
            with pytest.raises(ConfigError, match="plain file"):
                read_project(root)
            file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()

    @given(
        st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3),
        st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3),
    )
    def test_the_digest_tells_contents_apart(self, one: dict[str, bytes], two: dict[str, bytes]) -> None:
        """Two configurations have one digest only if they are the same."""
        digests = [ProjectFiles(Path("/p"), files).digest for files in (one, two)]
        assert (digests[0] == digests[1]) == (one == two)


class TestDescription:
    def test_it_says_what_would_run(self, root: Path) -> None:
        """Commands, addresses, headers and texts, and the names of variables, not their values."""
        servers = {
            "one": {"command": "npx", "args": ["-y", "server"], "env": {"KEY": "${MY_KEY}"}},
            "two": {"type": "http", "url": "https://example.org/mcp", "headers": {"X-Key": "${MY_KEY}"}},
        }
        (root / MCP_FILE).write_text(json.dumps({"mcpServers": servers}))
        (root / FILE).write_text('test_command = "make test"')
        text = "\n".join(described(read_project(root)))
        assert "starts, outside of the sandbox: KEY=${MY_KEY} npx -y server" in text
        assert "connects to: https://example.org/mcp" in text
        assert "sends the header X-Key: ${MY_KEY}" in text
        assert '    test_command = "make test"' in text

    def test_a_project_cannot_hide_a_line(self, root: Path) -> None:
        """Control characters are not sent to the terminal, and a line break shows."""
        mcp(root, "npx\x1b[2K\r\nls", "\x1b]0;x\x07")
        text = "\n".join(described(read_project(root)))
        assert "\x1b" not in text
        assert "\r" not in text
        assert "\\nls" in text

    @pytest.mark.parametrize(
        ("arguments", "line"),
        [
            (
                ["-c", "touch X; sleep 2 #\rnpx -y @scope/server"],
                "sh -c 'touch X; sleep 2 #⟨CR⟩npx -y @scope/server'",
            ),
            (["-c", "ls \u202e\u200b\u00a0\ufe0f"], "sh -c 'ls ⟨U+202E⟩⟨U+200B⟩⟨U+00A0⟩⟨U+FE0F⟩'"),
            (["-c", "touch X\nnpx 'a'\\"], "sh -c $'touch X\\nnpx \\'a\\'\\\\'"),
            (["a b", "", "c"], "sh 'a b' '' c"),
            (["TOKEN=ghp_" + "a1B2" * 9], "sh TOKEN=ghp_" + "a1B2" * 9),
            (["x" * 10_000], "sh " + "x" * 10_000),
        ],
    )
    def test_a_command_is_shown_word_for_word(self, root: Path, arguments: list[str], line: str) -> None:
        """Whole, with the ends of its words, with nothing taken out and nothing hidden."""
        mcp(root, "sh", *arguments)
        assert described(read_project(root))[0].endswith(f"starts, outside of the sandbox: {line}")

    def test_texts_are_shown_whole(self, root: Path) -> None:
        """Each line of a workflow, however many and however long, and bytes that are no text."""
        lines = [f"# {n} {'x' * 500}" for n in range(150)]
        (root / ".vivace/workflows/a.toml").write_bytes("\n".join([*lines, "a = '\x1b'"]).encode() + b"\xff")
        text = described(read_project(root))
        assert text[1:] == [*(f"    {line}" for line in lines), "    a = '⟨ESC⟩'⟨U+DCFF⟩"]

    def test_what_is_too_long_to_be_shown_cannot_be_trusted(self, root: Path, store: TrustStore) -> None:
        """By nobody and in no way."""
        (root / ".vivace/workflows/a.toml").write_text("#\n" * 6000)
        with pytest.raises(ConfigError, match="too long to be shown whole"):
            store.trust(read_project(root))
        assert not store.is_trusted(read_project(root))


class TestProjectSettings:
    def test_a_test_command_is_all_that_it_has(self, root: Path) -> None:
        """It is read from the bytes that were trusted."""
        (root / FILE).write_text('test_command = "make test"')
        project = read_project(root)
        (root / FILE).unlink()
        assert project_settings(project).test_command == "make test"
        assert project_settings(ProjectFiles(root)).test_command == ""

    def test_it_is_used_after_trust_and_behind_the_users_own(
        self, root: Path, store: TrustStore, settings: Settings
    ) -> None:
        """A command of the user's own wins, and one that was not trusted is not there."""
        (root / FILE).write_text('test_command = "make test"')
        assert with_project_settings(settings, root).test_command == ""
        store.trust(read_project(root))
        assert with_project_settings(settings, root).test_command == "make test"
        mine = settings.having(test_command="mine")
        assert with_project_settings(mine, root).test_command == "mine"

    @given(st.sampled_from([*Settings.__struct_fields__, "access", "asking", "trust", "allow"]))
    def test_nothing_else_can_be_set(self, name: str) -> None:
        """Neither a model, nor an upstream, nor a permission: trusted or not, it is an error."""
        data = f'{name} = "x"'.encode()
        project = ProjectFiles(Path("/p"), {FILE: data})
        if name == "test_command":
            assert project_settings(project).test_command == "x"
        else:
            with pytest.raises(ConfigError):
                project_settings(project)


class TestServers:
    @pytest.mark.parametrize(
        "text",
        [
            "[",
            "[]",
            '{"mcpServers": 1}',
            '{"mcpServers": {"a b": {"command": "x"}}}',
            '{"mcpServers": {"a__b/../": {"command": "x"}}}',
            '{"mcpServers": {"a": {}}}',
            '{"mcpServers": {"a": 1}}',
            '{"mcpServers": {"a": {"command": "x", "url": "http://y"}}}',
            '{"mcpServers": {"a": {"command": ["x"]}}}',
            '{"mcpServers": {"a": {"url": "file:///etc/passwd"}}}',
            "[" * 100_000,
        ],
    )
    def test_nonsense_is_an_error(self, text: str) -> None:
        """With the file's name, and never a crash."""
        with pytest.raises(ConfigError, match=r"mcp\.json"):
            project_servers(text.encode())

    @given(st.binary(max_size=200))
    def test_any_bytes_are_servers_or_an_error(self, data: bytes) -> None:
        """Nothing else comes out."""
        with contextlib.suppress(ConfigError):
            project_servers(data)

    def test_keys_of_other_programs_are_passed_over_in_a_project(self) -> None:
        """A user's own table has no room for them, nor for its limit of time to be set by a project."""
        given = {"command": "x", "type": "stdio", "autoApprove": ["*"], "timeout_seconds": 600}
        (named,) = project_servers(json.dumps({"mcpServers": {"a": given}}).encode())
        assert named.server.timeout_seconds == 60.0
        with pytest.raises(ConfigError, match="autoApprove"):
            user_servers({"a": {"command": "x", "autoApprove": ["*"]}})

    def test_variables_are_filled_in(self) -> None:
        """One that is not set is named, unless there is something to take instead."""
        (named,) = user_servers({"a": {"command": "x", "env": {"K": "<${VIVACE_NO_SUCH:-other}>"}}})
        assert named.env == {"K": "<other>"}
        (named,) = user_servers({"a": {"url": "http://x", "headers": {"K": "${VIVACE_NO_SUCH}"}}})
        with pytest.raises(ConfigError, match="VIVACE_NO_SUCH"):
            _ = named.headers
