"""The agent's side of the protocol: every method, and the sessions that are open.

Owns which session a request is for, and that what goes wrong is answered with words and a hint. Does not own
a session (`session`), nor the bytes (`serving`).
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from acp import PROTOCOL_VERSION, RequestError
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    DeleteSessionRequest,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptRequest,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)

from vivace import __version__
from vivace.acp.link import SessionLink
from vivace.acp.past import list_sessions
from vivace.acp.prompts import Block
from vivace.acp.requests import DELETE, Requests
from vivace.acp.servers import Server, server_table
from vivace.acp.session import AcpSession, open_session
from vivace.agent.conversation.past import delete_past, fork_past
from vivace.agent.effort import Effort
from vivace.config import Settings
from vivace.errors import ConversationBusy, ConversationNotFound, UsageError, VivaceError

STEERING = "session/steering"  # an extension that other agents have too; on the wire with a _ in front
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603
P = ParamSpec("P")
T = TypeVar("T")


def answered(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Answer our errors as errors of JSON-RPC, in words and with the hint."""

    @functools.wraps(method)
    async def answer(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except VivaceError as error:
            code = INVALID_PARAMS if isinstance(error, UsageError) else INTERNAL_ERROR
            message = f"{error.message} {error.hint}".strip()
            raise RequestError(code, message, {"code": error.code, "hint": error.hint}) from error

    return answer


class VivaceAgent:
    def __init__(self, settings: Settings, requests: Requests, effort: Effort | None = None) -> None:
        self._settings, self._requests, self._effort = settings, requests, effort
        self._capabilities = ClientCapabilities()
        self._sessions: dict[str, AcpSession] = {}
        self._client: Client | None = None

    def on_connect(self, client: Client) -> None:
        self._client = client

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: Any,
    ) -> InitializeResponse:
        del protocol_version, client_info  # there is one version so far
        self._capabilities = client_capabilities or ClientCapabilities()
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="vivace", title="Vivace", version=__version__),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                    fork=SessionForkCapabilities(),
                ),
            ),
            auth_methods=[],
            field_meta={"steering": {"supported": True}},
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        """Accept anything: the server is the user's own, and its token is found on this machine."""
        del method_id

    # ---- sessions ---------------------------------------------------------------------------------

    @answered
    async def new_session(
        self, cwd: str, mcp_servers: list[Server] | None = None, **_: Any
    ) -> NewSessionResponse:
        session = await self._requests.breakable(self._opened(cwd, None, mcp_servers))
        session.follow()
        return NewSessionResponse(
            session_id=session.talk.id, modes=session.modes, config_options=list(session.options)
        )

    @answered
    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: list[Server] | None = None, **_: Any
    ) -> LoadSessionResponse:
        session = await self._requests.breakable(self._replayed(cwd, session_id, mcp_servers))
        session.follow()
        return LoadSessionResponse(modes=session.modes, config_options=list(session.options))

    @answered
    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: list[Server] | None = None, **_: Any
    ) -> ResumeSessionResponse:
        session = await self._requests.breakable(self._opened(cwd, session_id, mcp_servers))
        session.follow()
        return ResumeSessionResponse(modes=session.modes, config_options=list(session.options))

    @answered
    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: list[Server] | None = None, **_: Any
    ) -> ForkSessionResponse:
        session = await self._requests.breakable(self._forked(cwd, session_id, mcp_servers))
        session.follow()
        return ForkSessionResponse(
            session_id=session.talk.id, modes=session.modes, config_options=list(session.options)
        )

    @answered
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        listing = asyncio.to_thread(list_sessions, self._settings, cwd, cursor)
        page, following = await self._requests.breakable(listing)
        return ListSessionsResponse(sessions=page, next_cursor=following)

    @answered
    async def close_session(self, session_id: str, **_: Any) -> None:
        await self._close(self._session(session_id))

    async def _delete(self, session_id: str) -> None:
        """Delete a conversation for good. One in which nothing was said is only closed."""
        session = self._sessions.get(session_id)
        if session is not None:
            await self._close(session)
        with contextlib.suppress(ConversationNotFound) if session else contextlib.nullcontext():
            await asyncio.to_thread(delete_past, self._settings, session_id)

    @answered
    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> SetSessionModeResponse:
        self._session(session_id).use_mode(mode_id)
        return SetSessionModeResponse()

    @answered
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._session(session_id)
        await session.use_option(config_id, str(value))
        return SetSessionConfigOptionResponse(config_options=list(session.options))

    # ---- prompts ----------------------------------------------------------------------------------

    @answered
    async def prompt(self, session_id: str, prompt: list[Block], **_: Any) -> PromptResponse:
        session = self._session(session_id)
        with self._requests.cancelled_by(session.cancel):
            return await session.prompt(prompt)

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session := self._sessions.get(session_id):
            session.cancel()

    @answered
    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == STEERING:
            request = PromptRequest.model_validate(params)
            return {"outcome": await self._session(request.session_id).steer(request.prompt)}
        if method == DELETE:
            await self._delete(DeleteSessionRequest.model_validate(params).session_id)
            return {}
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Pass over what we do not know."""

    async def close(self) -> None:
        """End all sessions."""
        sessions, self._sessions = self._sessions, {}
        await asyncio.gather(*(session.close() for session in sessions.values()))

    def _session(self, session_id: str) -> AcpSession:
        if session_id not in self._sessions:
            raise ConversationNotFound(
                f"The session {session_id!r} is not open.", "Begin one, or load it: session/load."
            )
        return self._sessions[session_id]

    async def _close(self, session: AcpSession) -> None:
        del self._sessions[session.talk.id]
        await session.close()

    async def _replayed(self, cwd: str, session_id: str, servers: Sequence[Server] | None) -> AcpSession:
        session = await self._opened(cwd, session_id, servers)
        try:
            await session.replay()
        except asyncio.CancelledError:
            await self._close(session)
            raise
        return session

    async def _forked(self, cwd: str, session_id: str, servers: Sequence[Server] | None) -> AcpSession:
        """Return a session that goes on from what was said in another one, open or not."""
        source = self._sessions.get(session_id)
        if source is not None and not source.talk.turns:
            return await self._opened(cwd, None, servers)
        forked = await asyncio.to_thread(fork_past, self._settings, session_id)
        try:
            return await self._opened(cwd, forked, servers)
        except (VivaceError, asyncio.CancelledError):
            delete_past(self._settings, forked)
            raise

    async def _opened(self, cwd: str, session_id: str | None, servers: Sequence[Server] | None) -> AcpSession:
        """Begin a session in a folder, or open the one with this id."""
        assert self._client is not None, "the connection is there before any request"
        if session_id in self._sessions:
            raise ConversationBusy(f"The session {session_id} is open already.", "Close it first.")
        folder = await asyncio.to_thread(_folder, cwd)
        named = server_table(servers or ()) | self._settings.mcp_servers  # the user's own have their names
        settings = self._settings.having(mcp_servers=named)
        link = SessionLink(self._client, self._capabilities, self._requests)
        session = await open_session(link, settings, folder, session_id)
        if session.talk.folder != folder:
            await session.close()
            raise UsageError(
                f"That conversation is about {session.talk.folder}.", "Open it from that folder."
            )
        session.talk.effort = self._effort or session.talk.effort
        self._sessions[session.talk.id] = session
        return session


def _folder(cwd: str) -> Path:
    """Return the folder of a session, links followed. Raise UsageError if it is none."""
    path = Path(cwd)
    try:
        if path.is_absolute() and path.is_dir():
            return path.resolve()
    except (OSError, ValueError):
        pass
    raise UsageError(f"{cwd!r} is no folder.", "`cwd` must be the absolute path of a folder that exists.")
