"""Talks to the model hub over HTTP: JSON of its API, and bytes of files.

Owns who gets the user's token: the hub itself, and nobody that it redirects to. Says why the hub refuses in
words for people. Does not know what files mean (`listing`, `header`) or where they go (`sources`).
"""

import http.client
import ipaddress
import json
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from email.message import Message
from typing import IO, Any

from vivace.config import Settings, hub_token
from vivace.errors import ModelUnavailable, UsageError

ANSWER_SECONDS = 30.0
REACH_SECONDS = 3.0  # a network that drops packets must not cost more than this
MAX_JSON_BYTES = 32 << 20
MAX_PAGES = 50


class Hub:
    """One hub, by its address. The token is sent to that address only, and only where nobody can read it."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url.rstrip("/")
        self._token = token if _is_private(self.url) else ""
        self._opener = urllib.request.build_opener(_Redirects(self))

    def file_url(self, repo: str, revision: str, path: str) -> str:
        return f"{self.url}/{repo}/resolve/{revision}/{urllib.parse.quote(path)}"

    def open(self, url: str, begin: int, end: int | None = None) -> http.client.HTTPResponse:
        """Ask for the bytes from `begin` on, up to but without `end`. Follow redirects."""
        headers = {"Range": f"bytes={begin}-{'' if end is None else end - 1}", "User-Agent": "vivace"}
        request = urllib.request.Request(url, headers=headers)
        self.authorize(request)
        answer: http.client.HTTPResponse = self._opener.open(request, timeout=ANSWER_SECONDS)
        return answer

    def authorize(self, request: urllib.request.Request) -> None:
        """Put the token on a request to the hub, and take it off any other."""
        request.remove_header("Authorization")
        if self._token and _origin(request.full_url) == _origin(self.url):
            request.add_header("Authorization", f"Bearer {self._token}")

    def read_json(self, repo: str, path: str) -> list[Any]:
        """Return the answers of an API path under the repository: one, or as many as it has pages."""
        url: str | None = f"{self.url}/api/models/{repo}{path}"
        pages: list[Any] = []
        while url and len(pages) < MAX_PAGES:
            try:
                with self.open(url, 0) as answer:
                    pages.append(_decoded(answer.read(MAX_JSON_BYTES + 1)))
                    url = _next_page(answer.headers, self.url)
            except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
                raise self.refusal(repo, error) from error
        return pages

    def refusal(self, repo: str, error: Exception) -> ModelUnavailable | UsageError:
        """Return the error for a person: what the hub refuses, and what to do."""
        if not isinstance(error, urllib.error.HTTPError):
            reason = reason_of(error)
            return ModelUnavailable(
                f"The model hub at {self.url} cannot be asked about {repo}: {reason}.",
                "Check the network and try again, or name a mirror with HF_ENDPOINT.",
            )
        error.close()
        word = error.headers.get("X-Error-Code", "")
        if word == "GatedRepo" or (error.code == http.client.FORBIDDEN and word != "RepoNotFound"):
            return self._gated(repo)
        if error.code == http.client.UNAUTHORIZED and self._token:
            return ModelUnavailable(
                f"The model hub does not take the token in HF_TOKEN for {repo}.",
                f"Make a new one at {self.url}/settings/tokens, or check the name of the repository.",
            )
        if error.code in (http.client.UNAUTHORIZED, http.client.NOT_FOUND):
            return UsageError(
                f"There is no {repo} on the model hub, or it is private.",
                f"Look at {self.url}/{repo}; a private one needs your token in HF_TOKEN.",
            )
        if error.code == http.client.TOO_MANY_REQUESTS:
            wait = error.headers.get("Retry-After", "")
            when = f"in {wait} s" if wait.isdigit() else "in a few minutes"
            return ModelUnavailable("The model hub says that it was asked too often.", f"Try again {when}.")
        return ModelUnavailable(
            f"The model hub answered {error.code} {error.reason} for {repo}.", "Try again later."
        )

    def _gated(self, repo: str) -> ModelUnavailable:
        how = f"Open {self.url}/{repo} and accept them"
        if self._token:
            how += " with the account of your HF_TOKEN; the token must be allowed to read gated repositories."
        else:
            how += f", make a token at {self.url}/settings/tokens, and set HF_TOKEN to it."
        return ModelUnavailable(f"{repo} is gated: its owners want you to agree to their terms first.", how)


def hub_of(settings: Settings) -> Hub:
    return Hub(settings.hub_url, hub_token())


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect without the token, unless it stays on the hub; never from https to http."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        was, now = (urllib.parse.urlsplit(url).scheme for url in (req.full_url, newurl))
        if now not in ("http", "https") or (was == "https" and now == "http"):
            raise urllib.error.URLError(f"it redirects to {now}, which is not followed")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None:
            self._hub.authorize(request)
        return request


def reach(url: str) -> str:
    """Connect once within `REACH_SECONDS`, name lookup included, which has no timeout of its own.

    Return what is in the way, or "".
    """
    outcome: list[OSError | None] = []
    thread = threading.Thread(target=_connect, args=(_address(url), outcome), daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    if not outcome:
        return f"no answer within {REACH_SECONDS:.0f} s"
    return reason_of(outcome[0]) if outcome[0] is not None else ""


def _address(url: str) -> tuple[str, int]:
    """Return the host to connect to for this URL, or the proxy that the environment names."""
    parts = urllib.parse.urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.hostname or ""):
        parts = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _connect(address: tuple[str, int], outcome: list[OSError | None]) -> None:
    try:
        socket.create_connection(address, REACH_SECONDS).close()
        outcome.append(None)
    except OSError as error:
        outcome.append(error)


def reason_of(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        error = error.reason if isinstance(error.reason, Exception) else error
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _origin(url: str) -> tuple[str, str, int]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _is_private(url: str) -> bool:
    """Return whether nobody can read along: it is encrypted, or stays on this machine."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _decoded(data: bytes) -> Any:
    if len(data) > MAX_JSON_BYTES:
        raise ValueError("its answer is too long")
    return json.loads(data)


def _next_page(headers: Message, hub_url: str) -> str | None:
    """Return the address in `Link: <…>; rel="next"`, if it is one of the hub's own."""
    for link in (headers.get("Link") or "").split(","):
        address, _, rest = link.strip().partition(">")
        if 'rel="next"' in rest:
            url = urllib.parse.urljoin(f"{hub_url}/", address.removeprefix("<"))
            return url if _origin(url) == _origin(hub_url) else None
    return None
