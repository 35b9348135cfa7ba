"""What a tool is: a name, a schema, the permissions that a call needs, a run, and a line that shows it.

Owns the seam. A tool of ours is a class in a module of its own (`read`, `edit`, `shell` …); one of an MCP
server can be another class of this shape. Does not own when a tool runs, nor whether it may (`loop`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from vivace.agent.permissions.decision import Need, ReadPath, WritePath
from vivace.agent.permissions.paths import Place
from vivace.agent.permissions.policy import Policy
from vivace.agent.sandbox.plain import Terminal
from vivace.agent.tools.writes import Writes
from vivace.errors import VivaceError

A = TypeVar("A", bound="Arguments")


class MalformedCall(VivaceError):
    """A call that cannot be understood: unknown tool, bad JSON, or arguments that do not fit the schema."""

    code = "malformed_call"


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of a tool, whose schema the model is told."""


class Step(msgspec.Struct, frozen=True):
    """A step of the model's plan."""

    step: str
    status: str  # pending, in_progress or completed


@dataclass
class ToolContext:
    """What the tools of one task share."""

    root: Path  # the workspace
    policies: tuple[Policy, ...]  # the user's first
    has_sandbox: bool
    writes: Writes = field(default_factory=Writes)
    plan: tuple[Step, ...] = ()
    terminal: Terminal | None = None  # for commands that leave the sandbox
    sandbox_state: Path | None = None  # where what a command may not make is moved; None: this user's place
    sandbox_remedy: str = ""  # how this machine gets a sandbox, if it has none

    @property
    def is_read_only(self) -> bool:
        return any(policy.access == "read-only" for policy in self.policies)

    @property
    def protected_names(self) -> frozenset[str]:
        return frozenset[str]().union(*(policy.protected_names for policy in self.policies))


@dataclass(frozen=True)
class ToolResult:
    output: str  # what the model reads
    summary: str = ""  # what a person reads: a few words
    is_error: bool = False


class Tool(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def is_read_only(self) -> bool:
        """Return whether calls change nothing, so that several may run at once, before the turn ends."""
        ...

    @property
    def taints(self) -> bool:
        """Return whether its output may hold text that the user did not write."""
        ...

    @property
    def stages(self) -> bool:
        """Return whether its changes are staged in the context, to be written with others of the turn."""
        ...

    def definition(self) -> dict[str, Any]:
        """Return the tool as a request of the Responses API has it."""
        ...

    def parse(self, given: str) -> Any:
        """Return the arguments of a call, or raise MalformedCall with the exact fault."""
        ...

    def needs(self, arguments: Any, context: ToolContext) -> list[Need]:
        """Return what the call must be allowed to do."""
        ...

    def title(self, arguments: Any) -> str:
        """Return a line that shows the call to a person."""
        ...

    def exact(self, arguments: Any) -> str:
        """Return all of what the call would do, for a person who is asked whether it may."""
        ...

    async def run(self, arguments: Any, context: ToolContext, needs: Sequence[Need]) -> ToolResult:
        """Do it, in the places of `needs`: those that were judged. No path is followed again.

        A VivaceError is told to the model as the call's output.
        """
        ...


class FunctionTool(ABC, Generic[A]):
    """A tool of ours, called with a JSON object."""

    name: ClassVar[str]
    description: ClassVar[str]
    is_read_only: ClassVar[bool] = False
    taints: ClassVar[bool] = True
    stages: ClassVar[bool] = False
    arguments: type[A]

    def definition(self) -> dict[str, Any]:
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": schema_of(self.arguments),
        }

    def parse(self, given: str) -> A:
        try:
            return msgspec.json.decode(given or "{}", type=self.arguments)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise MalformedCall(f"The arguments of {self.name} are wrong: {error}.") from error

    @abstractmethod
    def needs(self, arguments: A, context: ToolContext) -> list[Need]: ...

    @abstractmethod
    def title(self, arguments: A) -> str: ...

    def exact(self, arguments: A) -> str:
        return self.title(arguments)

    @abstractmethod
    async def run(self, arguments: A, context: ToolContext, needs: Sequence[Need]) -> ToolResult: ...


def judged(needs: Sequence[Need]) -> dict[str, Place]:
    """Return the places of a call as they were judged, by the paths that the model wrote."""
    return {need.place.shown: need.place for need in needs if isinstance(need, (ReadPath, WritePath))}


def named_path(path: str) -> str:
    """Return a path for one line of a question: in quotes where it could look like more than a path."""
    return msgspec.json.encode(path).decode() if "\n" in path or path.startswith('"') else path


def schema_of(arguments: type[Arguments]) -> dict[str, Any]:
    """Return the JSON schema of the arguments, without references: not every server follows them."""
    schema = msgspec.json.schema(arguments)
    definitions = schema.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, list):
            return [resolved(each) for each in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return resolved(definitions[node["$ref"].rpartition("/")[2]])
        return {
            key: resolved(value) for key, value in node.items() if key != "title" or isinstance(value, dict)
        }

    whole: dict[str, Any] = resolved(schema)
    whole.pop("description", None)
    return whole
