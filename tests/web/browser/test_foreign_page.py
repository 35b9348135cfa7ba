"""A page of another program on this machine, in the browser that is signed in: it gets nothing.

Its port is another, but its site is the same, so that the browser sends our cookie along.
"""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.server.transport.attacks.attacking import POSTS
from vivace.cli.talk.browsing import entrance
from vivace.client.warm import ServerAddress

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class EmptyPage(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def foreign(chromium: "Browser", address: ServerAddress, folder: Path) -> Iterator["Page"]:
    """An empty page at another port, beside a tab with the app."""
    context = chromium.new_context()
    app = context.new_page()
    app.goto(entrance(address, folder))
    app.wait_for_selector(".connection.connected")
    assert context.cookies()
    server = ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    yield page
    context.close()
    server.shutdown()
    server.server_close()


def test_no_frame_shows_the_app(foreign: "Page", address: ServerAddress) -> None:
    """The browser refuses to draw it: nobody can be led to click into it unseen."""
    foreign.evaluate(
        """url => new Promise((done) => {
          const frame = document.createElement("iframe");
          frame.onload = done;
          frame.src = url;
          document.body.append(frame);
        })""",
        f"http://127.0.0.1:{address.port}/",
    )
    (frame,) = foreign.frames[1:]
    assert frame.url.startswith("chrome-error:")


def test_no_socket_opens_for_it(foreign: "Page", address: ServerAddress) -> None:
    """The cookie comes along, but the Origin is another one."""
    closed = foreign.evaluate(
        """url => new Promise((done) => {
          const socket = new WebSocket(url);
          socket.onopen = () => done("open");
          socket.onerror = () => done("refused");
        })""",
        f"ws://127.0.0.1:{address.port}/v1/vivace/faces",
    )
    assert closed == "refused"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_no_form_of_it_is_taken(foreign: "Page", address: ServerAddress, kind: str) -> None:
    """Each route that takes a POST answers 403 to a form, which no page has to ask for."""
    home = foreign.url
    for target in POSTS:
        foreign.goto(home)
        with foreign.expect_navigation() as arrived:
            foreign.evaluate(
                """([url, kind]) => {
                  const form = document.createElement("form");
                  Object.assign(form, { method: "POST", action: url, enctype: kind });
                  document.body.append(form);
                  form.submit();
                }""",
                [f"http://127.0.0.1:{address.port}{target.path}", kind],
            )
        assert arrived.value is not None
        assert arrived.value.status == 403, target
