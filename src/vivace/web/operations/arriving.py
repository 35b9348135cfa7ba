"""A face comes, and chooses the folder that it works in.

Owns the greeting. Does not own what else a face may do.
"""

import asyncio
from pathlib import Path

from vivace import __version__
from vivace.agent.effort import DEFAULT_EFFORT, EFFORTS
from vivace.agent.permissions.modes import MODES
from vivace.errors import BadRequest, FileProblem
from vivace.web.face import Face
from vivace.web.messages import figure_requests
from vivace.web.messages.answers import ModelRows, Welcome
from vivace.web.messages.request import VERSION, FolderOpen, Hello
from vivace.web.models import model_rows
from vivace.web.operations.table import answers


@answers(Hello)
async def hello(face: Face, request: Hello) -> Welcome:
    if request.version != VERSION:
        raise BadRequest(
            f"This is version {VERSION} of the face protocol, not {request.version}.",
            "Reload the page, or update the extension: vivace editors install.",
        )
    face.name = request.face[:40]
    if request.folder:
        face.folder = await asyncio.to_thread(checked_folder, request.folder)
    return await welcome(face)


@answers(FolderOpen)
async def open_folder(face: Face, request: FolderOpen) -> Welcome:
    face.folder = await asyncio.to_thread(checked_folder, request.path)
    return await welcome(face)


@answers(figure_requests.ModelsList)
async def list_models(face: Face, _: figure_requests.ModelsList) -> ModelRows:
    return ModelRows(models=await asyncio.to_thread(model_rows, face.host.settings))


def checked_folder(path: str) -> Path:
    """Return the folder that a face named, absolute and without links."""
    try:
        folder = Path(path).expanduser()
        if not folder.is_absolute():
            raise FileProblem(f"{path} is not absolute.", "Name the folder from / on.")
        folder = folder.resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise FileProblem(f"The folder {path!r} cannot be opened.", "Name a folder that is there.") from error
    if not folder.is_dir():
        raise FileProblem(f"{path} is no folder.", "Name a folder.")
    return folder


async def welcome(face: Face) -> Welcome:
    settings = face.host.settings
    return Welcome(
        version=VERSION,
        program=__version__,
        folder=str(face.folder),
        models=await asyncio.to_thread(model_rows, settings),
        model=settings.model,
        effort=DEFAULT_EFFORT,
        efforts=list(EFFORTS),
        policies=[{"name": mode.name, "help": mode.help} for mode in MODES],
        settings={"theme": settings.theme},
    )
