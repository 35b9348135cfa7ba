"""Workflows with a real server, a scripted model, real files and real commands."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.loop.working import Face
from tests.sandboxes import needs_sandbox
from tests.server.conftest import served
from tests.server.serving import script
from vivace.agent.conversation.connection import Connection
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.events.task import (
    AnyStep,
    ApprovalAsked,
    ChangeTakenBack,
    FilesWritten,
    StepBegan,
    StepEnded,
    TaskEnded,
    WorkflowStarted,
)
from vivace.agent.loop.calls import Approval
from vivace.agent.loop.opening import open_desk
from vivace.agent.loop.task import TaskLimits
from vivace.agent.permissions.policy import Policy
from vivace.agent.permissions.shown import parse
from vivace.agent.workflows.recipe import parse_workflow
from vivace.agent.workflows.running import WorkflowRun, with_defaults
from vivace.config import Settings

__all__ = ["served"]
pytestmark = needs_sandbox
REPLIES = {
    "Write a poem": "Roses are red.\n```text\nviolets\n```\nDone.",
    "not good": "a better answer",
    "Ask": "a bad answer",
    "": "hello",
}


class Bench:
    """Runs workflows in a folder, each from the log that it is given."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.face = Face()

    async def run(
        self, text: str, *, before: Sequence[AnyStep] = (), policy: Policy | None = None, **inputs: str
    ) -> TaskEnded:
        text = f'description = "x"\n{text}'
        values = with_defaults("x", parse_workflow("x", text), inputs)
        started = WorkflowStarted(name="x", text=text, inputs=values)
        connection = Connection(self.settings)
        journal = Journal(self.settings.state_dir / "undo")
        try:
            desk = await open_desk(self.folder, "x", self.face, policy or Policy(), journal)
            steps = [started, *before]
            self.work = WorkflowRun("x", desk, connection, TaskLimits(), steps)
            return await self.work.run()
        finally:
            await connection.close()

    def outputs(self) -> dict[str, str]:
        return {step.key: step.output for step in self.face.seen(StepEnded) if step.status == "done"}


@pytest.fixture
def bench(served: Settings, tmp_path: Path) -> Bench:
    folder = tmp_path / "repository"
    folder.mkdir()
    model = script(tmp_path, replies=REPLIES, context_tokens=20000)
    return Bench(served.having(model=model), folder)


def read(path: Path) -> str:
    return path.read_text()


def exists(path: Path) -> bool:
    return path.exists()


async def test_outputs_go_from_step_to_step(bench: Bench) -> None:
    """A command's lines are looped over, a step is passed over, and values in commands are words."""
    ended = await bench.run(
        """
        [inputs.odd]
        [inputs.none]
        default = ""
        [[steps]]
        run = "printf '%s\\\\n' {odd} b {odd}"
        as = "all"
        [[steps]]
        when = "{none}"
        run = "false"
        [[steps]]
        for_each = "{all}"
        [[steps.steps]]
        run = "echo got {item}"
        """,
        odd="a; touch evil",
    )
    assert (ended.reason, ended.exit_code) == ("completed", 0)
    assert bench.outputs() == {
        "1": "a; touch evil\nb\na; touch evil",
        "3.items": "a; touch evil\nb",
        "3[a; touch evil].1": "got a; touch evil",
        "3[b].1": "got b",
        "3": "a; touch evil\nb",
    }
    assert not exists(bench.folder / "evil")


async def test_an_answer_is_written_checked_and_taken_back(bench: Bench) -> None:
    """A failed check undoes the file; the model is told and tries again; what passes stays."""
    ended = await bench.run(
        """
        [[steps]]
        ask = "Ask"
        to = "answer.txt"
        check.run = "grep better answer.txt"
        tries = 2
        """
    )
    assert ended.reason == "completed"
    assert read(bench.folder / "answer.txt") == "a better answer\n"
    assert len(bench.face.seen(ChangeTakenBack)) == 1
    assert len(ended.entries) == 1


async def test_a_step_that_fails_ends_it_and_leaves_nothing(bench: Bench) -> None:
    """Without another try the change is taken back, and the end says which step and why."""
    ended = await bench.run(
        '[[steps]]\nask = "Ask"\nto = "a.txt"\ncheck.run = "echo no; false"\n[[steps]]\nrun = "touch b"'
    )
    assert (ended.reason, ended.exit_code) == ("failed", 1)
    assert ended.error is not None
    assert "Step 1 failed" in ended.error.message
    assert "no" in ended.error.message
    assert not exists(bench.folder / "a.txt")
    assert not exists(bench.folder / "b")


async def test_a_loop_can_go_on_after_a_failure(bench: Bench) -> None:
    """on_fail = continue: the others are done, and the end names what failed."""
    text = '[[steps]]\nfor_each = "a\\nb"\n[[steps.steps]]\nrun = "test {item} = b"\non_fail = "continue"'
    ended = await bench.run(text)
    assert ended.reason == "completed"
    assert "1[a].1" in ended.text


async def test_code_is_taken_out_of_an_answer(bench: Bench) -> None:
    """is_code takes the first block; `end` and `top` put it where they say."""
    write(bench.folder / "log.md", "# Log\n\nold\n")
    await bench.run('[[steps]]\nask = "Write a poem"\nis_code = true\nto = "log.md"\nwhere = "top"')
    assert read(bench.folder / "log.md") == "# Log\n\nviolets\n\nold\n"
    await bench.run('[[steps]]\nask = "Write a poem"\nis_code = true\nto = "log.md"\nwhere = "end"')
    assert read(bench.folder / "log.md").endswith("old\n\n\nviolets\n")


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_parallel_steps_give_their_outputs(bench: Bench) -> None:
    """Questions and commands of a parallel step are all known behind it."""
    ended = await bench.run(
        """
        [[steps]]
        [[steps.parallel]]
        run = "echo one"
        as = "a"
        [[steps.parallel]]
        ask = "hi"
        as = "b"
        [[steps]]
        run = "echo {a} {b}"
        """
    )
    assert ended.reason == "completed"
    assert bench.outputs()["2"] == "one hello"


async def test_an_edit_and_a_review(bench: Bench) -> None:
    """An exact renaming needs no model; a review reads the change and says yes or no."""
    write(bench.folder / "a.py", "def old():\n    return 1\n")
    ended = await bench.run(
        '[[steps]]\nedit = "rename `old` to `new`"\nfiles = ["a.py"]\n'
        '[[steps]]\nreview = "Is it right?"\ncheck.says = "yes|no"'
    )
    assert ended.reason == "completed", ended.error
    assert read(bench.folder / "a.py") == "def new():\n    return 1\n"


class TestPermissions:
    @pytest.mark.parametrize("path", [".git/config", "../out", ".vivace/config.toml"])
    async def test_protected_and_outside_are_not_written(self, bench: Bench, path: str) -> None:
        """A workflow may write what a task may, and nothing else."""
        ended = await bench.run(f'[[steps]]\nrun = "echo x"\nto = "{path}"')
        assert ended.reason == "failed"
        assert not exists(bench.folder / path)

    async def test_read_only_asks_and_never_refuses(self, bench: Bench) -> None:
        """A no ends it with the code for a missing approval; a yes lets it go on."""
        text = '[[steps]]\nrun = "echo x"\nto = "a.txt"'
        assert (await bench.run(text, policy=Policy("read-only", "on-request"))).exit_code == 4
        assert not exists(bench.folder / "a.txt")
        bench.face.answers = [Approval(is_allowed=True)]
        assert (await bench.run(text, policy=Policy("read-only", "on-request"))).exit_code == 0
        assert read(bench.folder / "a.txt") == "x\n"

    async def test_a_command_is_asked_about_whole(self, bench: Bench) -> None:
        """With every line of it and whatever hides; no ends it."""
        line = "true # \u202e ghp_" + "a1B2" * 9 + "\ntouch X"
        text = f"[[steps]]\nrun = {json.dumps(line)}"
        assert (await bench.run(text, policy=Policy("workspace-write", "ask"))).exit_code == 4
        (asked,) = bench.face.seen(ApprovalAsked)
        assert (parse(asked.shown), "\u202e" in asked.shown) == (line, False)
        assert not exists(bench.folder / "X")

    @pytest.mark.parametrize("is_cut_off", [False, True])
    async def test_a_command_that_could_look_like_another_is_refused_unasked(
        self, bench: Bench, is_cut_off: bool
    ) -> None:
        """Also one that was cut off, and would be asked about again."""
        bench.face.answers = [Approval(is_allowed=True)] * 2
        text = f"[[steps]]\nrun = {json.dumps('touch X; # ' + chr(13) + 'ls -la')}"
        before = [StepBegan(key="1", kind="run", title="")] if is_cut_off else []
        assert (
            await bench.run(text, policy=Policy("workspace-write", "ask"), before=before)
        ).reason == "failed"
        assert bench.face.seen(ApprovalAsked) == []
        assert not exists(bench.folder / "X")

    async def test_an_edit_is_asked_about_with_its_diff(self, bench: Bench) -> None:
        """What is written is what was seen."""
        text = '[[steps]]\nrun = "echo x"\nto = "a.txt"'
        await bench.run(text, policy=Policy("read-only", "on-request"))
        (asked,) = bench.face.seen(ApprovalAsked)
        assert asked.shown.endswith("+x\n")

    async def test_commands_are_walled_in(self, bench: Bench) -> None:
        """A command cannot write outside of the folder."""
        outside = bench.folder.parent / "out"
        await bench.run(f'[[steps]]\nrun = "touch {outside}"\non_fail = "continue"')
        assert not exists(outside)


class TestResuming:
    TEXT = '[[steps]]\nrun = "echo x >> log; echo 1"\nas = "a"\n[[steps]]\nrun = "echo {a}2 >> log"'

    async def test_a_finished_step_is_not_done_again(self, bench: Bench) -> None:
        """Its output is what it was."""
        before: list[AnyStep] = [
            StepBegan(key="1", kind="run", title=""),
            StepEnded(key="1", output="7"),
        ]
        assert (await bench.run(self.TEXT, before=before)).reason == "completed"
        assert read(bench.folder / "log") == "72\n"

    async def test_a_command_that_was_cut_off_is_asked_about(self, bench: Bench) -> None:
        """It is not run again by itself; a yes runs it."""
        before = [StepBegan(key="1", kind="run", title="")]
        ended = await bench.run(self.TEXT, before=before)
        assert (ended.exit_code, exists(bench.folder / "log")) == (4, False)
        assert "cut off" in bench.face.seen(ApprovalAsked)[0].reason
        bench.face.answers = [Approval(is_allowed=True)]
        assert (await bench.run(self.TEXT, before=before)).exit_code == 0
        assert read(bench.folder / "log") == "x\n12\n"

    @pytest.mark.parametrize("cut", range(9))
    async def test_cut_off_anywhere_it_ends_as_without(self, bench: Bench, cut: int) -> None:
        """From every beginning of the log it ends with the same files, written once."""
        text = '[[steps]]\nask = "Ask"\nto = "a.txt"\nwhere = "end"\n[[steps]]\nrun = "cat a.txt"\nas = "b"'
        bench.face.answers = [Approval(is_allowed=True)]
        await bench.run(text)
        whole = list(bench.face.steps)
        seen = whole[: min(cut, len(whole))]
        if not any(isinstance(step, FilesWritten) for step in seen):
            Journal(bench.settings.state_dir / "undo").undo(bench.folder)
        bench.face.steps.clear()
        bench.face.answers = [Approval(is_allowed=True)]
        assert (await bench.run(text, before=seen)).reason == "completed"
        assert read(bench.folder / "a.txt") == "a bad answer\n"

    async def test_a_change_that_was_written_is_not_written_again(self, bench: Bench) -> None:
        """Cut off between the write and its line, the file is recognised and only checked."""
        text = '[[steps]]\nask = "Ask"\nto = "a.txt"\nwhere = "end"\ncheck.run = "test -e a.txt"'
        await bench.run(text)
        seen = list(bench.face.steps)
        seen = seen[: next(n for n, step in enumerate(seen) if isinstance(step, FilesWritten))]
        bench.face.steps.clear()
        assert (await bench.run(text, before=seen)).reason == "completed"
        assert read(bench.folder / "a.txt") == "a bad answer\n"
        assert len(bench.face.seen(FilesWritten)) == 1  # it is told, from the journal

    async def test_stopping_is_an_end(self, bench: Bench) -> None:
        """A command that runs is ended, and the end says that it was stopped."""
        running = asyncio.create_task(bench.run('[[steps]]\nrun = "touch begun; sleep 60"'))
        await bench.face.until(lambda: bool(bench.face.seen(StepBegan)))
        bench.work.stop()
        assert (await running).reason == "stopped"

    async def test_a_command_that_failed_is_run_again(self, bench: Bench) -> None:
        """It is known how it ended: who resumes wants it again, and is not asked."""
        text = '[[steps]]\nrun = "echo x >> log; test -e ok"'
        assert (await bench.run(text)).reason == "failed"
        seen = list(bench.face.steps)
        write(bench.folder / "ok", "")
        assert (await bench.run(text, before=seen)).reason == "completed"
        assert not bench.face.seen(ApprovalAsked)

    async def test_a_no_is_not_an_interruption(self, bench: Bench) -> None:
        """What was never allowed to begin is asked about as the first time, not as cut off."""
        policy = Policy("workspace-write", "ask")
        assert (await bench.run(self.TEXT, policy=policy)).exit_code == 4
        seen = list(bench.face.steps)
        bench.face.steps.clear()
        bench.face.answers = [Approval(is_allowed=True)] * 2
        assert (await bench.run(self.TEXT, before=seen, policy=policy)).exit_code == 0
        assert not any("cut off" in asked.reason for asked in bench.face.seen(ApprovalAsked))
