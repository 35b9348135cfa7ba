"""The files of the browser app, as they stand in the package.

Owns which there are: a name is looked up in a list, so no request can reach any other file. Each has its
type, an ETag and a compressed form. They hold no secret and need no session. Does not own what is in them.
"""

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

import vivace
from vivace.protocol.shapes.refusal import Refusal

PAGES = Path(__file__).parent / "pages"  # of those who are not signed in
APP = Path(vivace.__file__).parent / "web" / "static"  # made by `web/build.mjs`, which empties it first
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class AppFile:
    kind: str
    data: bytes
    compressed: bytes
    etag: str


class AppFiles:
    def __init__(self, *folders: Path) -> None:
        self._folders = folders or (APP, PAGES)
        self._files: dict[str, AppFile] | None = None  # by path below its folder; None: not read yet

    async def serve(self, request: Request) -> Response:
        """Answer `/app/NAME`."""
        return self.answer(request, f"app/{request.path_params['name']}")

    def answer(self, request: Request, name: str, status: int = 200) -> Response:
        """Answer with a file, or with nothing if the browser has it already."""
        if self._files is None:
            self._files = dict(file for folder in self._folders for file in _read(folder))
        file = self._files.get(name)
        if file is None:
            raise Refusal(f"There is no {name!r} in the app.", code="unknown_url", status=404)
        headers = {"etag": file.etag, "cache-control": "no-cache", "vary": "Accept-Encoding, Cookie"}
        if status == 200 and request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            return Response(file.compressed, status, headers, file.kind)
        return Response(file.data, status, headers, file.kind)


def _read(folder: Path) -> list[tuple[str, AppFile]]:
    """Read every file whose type is known. Links are not followed."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in TYPES and path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            etag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            compressed = gzip.compress(data, 9, mtime=0)
            found.append(
                (path.relative_to(folder).as_posix(), AppFile(TYPES[path.suffix], data, compressed, etag))
            )
    return found
