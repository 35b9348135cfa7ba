"""The tool `shell`: a command, inside the sandbox unless a person let it out.

Owns its limits and what is reported of it. Does not own the walls (`sandbox`), nor the permission
(`decision`).
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from vivace.agent.permissions.decision import Need, RunCommand
from vivace.agent.sandbox.plain import run_plainly
from vivace.agent.sandbox.run import Limits, Outcome, run_sandboxed
from vivace.agent.sandbox.workspace import Workspace
from vivace.agent.tools.base import Arguments, FunctionTool, ToolContext, ToolResult
from vivace.agent.tools.bounded import bounded, printable
from vivace.programs import find_program

MAX_SECONDS = 600
STOPPED = {
    "time": "It took too long and was ended.",
    "memory": "It used too much memory and was ended.",
    "processes": "It started too many processes and was ended.",
    "output": "It wrote too much output and was ended.",
    "disk": "It filled too much of the disk and was ended.",
}


class ShellArguments(Arguments, frozen=True, kw_only=True):
    command: Annotated[str, Meta(min_length=1, description="for sh -c, in the workspace")]
    timeout_seconds: Annotated[int, Meta(ge=1, le=MAX_SECONDS)] = 120
    leave_sandbox: Annotated[
        bool, Meta(description="needs the network or files outside of the workspace; the user is asked")
    ] = False


class Shell(FunctionTool[ShellArguments]):
    name: ClassVar[str] = "shell"
    description: ClassVar[str] = (
        "Run a shell command in the workspace: tests, builds, scripts. It runs in a sandbox without network, "
        "where only the workspace can be written. Use the other tools to read, search and change files."
    )
    arguments = ShellArguments

    def needs(self, arguments: ShellArguments, context: ToolContext) -> list[Need]:
        del context
        return [RunCommand(arguments.command, leaves_sandbox=arguments.leave_sandbox)]

    def title(self, arguments: ShellArguments) -> str:
        return arguments.command

    async def run(self, arguments: ShellArguments, context: ToolContext, needs: Sequence[Need]) -> ToolResult:
        del needs
        leaves = arguments.leave_sandbox or not context.has_sandbox
        seconds = arguments.timeout_seconds
        return _told(await run_command(arguments.command, context, seconds, leaves_sandbox=leaves))


async def run_command(
    line: str, context: ToolContext, seconds: float, *, leaves_sandbox: bool = False
) -> Outcome:
    """Run a line of the shell in the workspace, inside the sandbox unless it was let out."""
    command, limits = [find_program("bash", context.root) or "/bin/sh", "-c", line], limits_for(seconds)
    if leaves_sandbox:
        run = context.terminal.run_command if context.terminal else run_plainly
        return await run(command, context.root, limits)
    workspace = Workspace(
        context.root,
        is_writable=not context.is_read_only,
        protected=context.protected_names,
        state=context.sandbox_state,
    )
    return await run_sandboxed(command, workspace=workspace, limits=limits)


def limits_for(seconds: float) -> Limits:
    """Return what a command of a task may use: a build or a test suite, and not the whole machine."""
    return Limits(
        seconds=seconds,
        cpu_seconds=4 * seconds,
        memory_bytes=4 << 30,
        processes=256,
        output_bytes=4 << 20,
        file_bytes=1 << 30,
        folder_bytes=1 << 30,
        open_files=1024,
    )


def _told(outcome: Outcome) -> ToolResult:
    ended = STOPPED.get(outcome.stopped_by, f"exit code {outcome.exit_code}")
    output = bounded(printable(outcome.output).strip("\n"))
    text = f"{output}\n[{ended}]" if output else f"[{ended}, no output]"
    if outcome.undone:
        text, ended = f"{text}\n[{outcome.undone}]", f"{ended}. {outcome.undone}"
    return ToolResult(text, ended, is_error=not outcome.is_success)
