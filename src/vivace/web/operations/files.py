"""Requests about the files of a face's folder.

Owns nothing but the way to `web.files`, in a thread: disks are slow. Looks at watched files twice a second.
"""

import asyncio

from vivace.errors import BadRequest
from vivace.web import files
from vivace.web.face import Face
from vivace.web.messages import file_requests
from vivace.web.messages.answers import FileDigest, FileText, FoundFiles, Tree
from vivace.web.messages.events import FileChanged
from vivace.web.operations.table import answers

LOOK_S = 0.5
MAX_WATCHED = 200
MAX_FOUND = 500


@answers(file_requests.FilesTree)
async def tree(face: Face, request: file_requests.FilesTree) -> Tree:
    return await asyncio.to_thread(files.tree, face.folder, request.folder)


@answers(file_requests.FilesFind)
async def find(face: Face, request: file_requests.FilesFind) -> FoundFiles:
    limit = max(0, min(request.limit, MAX_FOUND))
    return FoundFiles(paths=await asyncio.to_thread(files.find, face.folder, request.words, limit))


@answers(file_requests.FilesRead)
async def read(face: Face, request: file_requests.FilesRead) -> FileText:
    return await asyncio.to_thread(files.read, face.folder, request.path)


@answers(file_requests.FilesWrite)
async def write(face: Face, request: file_requests.FilesWrite) -> FileDigest:
    digest = await asyncio.to_thread(files.write, face.folder, request.path, request.text, request.digest)
    if request.path in face.watched:
        face.watched[request.path] = digest
    return FileDigest(digest=digest)


@answers(file_requests.FilesWatch)
async def watch(face: Face, request: file_requests.FilesWatch) -> None:
    if len(request.paths) > MAX_WATCHED:
        raise BadRequest(f"At most {MAX_WATCHED} files can be watched.")
    is_first = not face.is_watching
    face.watched = await asyncio.to_thread(_digests, face, request.paths)
    if is_first:
        face.is_watching = True
        face.spawn(_look(face))


def _digests(face: Face, paths: list[str]) -> dict[str, str]:
    return {path: files.digest_of(face.folder, path) for path in paths}


async def _look(face: Face) -> None:
    """Look at the watched files again and again, and tell which have changed."""
    while True:
        await asyncio.sleep(LOOK_S)
        watched = face.watched
        found = await asyncio.to_thread(_digests, face, list(watched))
        for path, digest in found.items():
            if face.watched is watched and watched.get(path) != digest:
                watched[path] = digest
                face.tell(FileChanged(path=path, digest=digest))
