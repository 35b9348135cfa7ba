"""Requests about edits outside of a conversation, and about unsaved texts.

Owns nothing but the way to `live_edit` and `buffers`. An edit belongs to the face that began it.
"""

from vivace.errors import BadRequest
from vivace.web import files
from vivace.web.edit_prefill import EditReading
from vivace.web.face import Face
from vivace.web.live_edit import LiveEdit
from vivace.web.messages import edit_requests, file_requests, question_requests
from vivace.web.messages.answers import EditNamed
from vivace.web.operations.table import answers

MAX_EDITS = 8  # of a face, at once


@answers(file_requests.BuffersSet)
async def set_buffer(face: Face, request: file_requests.BuffersSet) -> None:
    face.host.buffers.set(face, files.inside(face.folder, request.path), request.text)


@answers(edit_requests.EditStart)
async def start(face: Face, request: edit_requests.EditStart) -> EditNamed:
    if len(face.edits) >= MAX_EDITS:
        raise BadRequest(f"{MAX_EDITS} edits run already.", "Decide about one first.")
    place = files.inside(face.folder, request.path)
    await face.stop_reading()
    edit = LiveEdit(face.host.settings, face.host.buffers, face.folder, place, request)
    name = face.add_edit(edit)
    return EditNamed(edit=name)


@answers(edit_requests.EditPrefill)
async def prefill(face: Face, request: edit_requests.EditPrefill) -> None:
    place = files.inside(face.folder, request.path)
    if face.reading is None:
        face.reading = EditReading(face.host.settings)
    await face.reading.update(face.folder, place, request)


@answers(edit_requests.EditSteer)
async def steer(face: Face, request: edit_requests.EditSteer) -> None:
    face.edit(request.edit).steer(request.text)


@answers(edit_requests.EditStop)
async def stop(face: Face, request: edit_requests.EditStop) -> None:
    face.edit(request.edit).stop()


@answers(question_requests.EditDecide)
async def decide(face: Face, request: question_requests.EditDecide) -> None:
    face.edit(request.edit).broadcast.questions.answer(request)


@answers(question_requests.EditResolve)
async def resolve(face: Face, request: question_requests.EditResolve) -> None:
    face.edit(request.edit).broadcast.questions.answer(request)


@answers(edit_requests.EditWritten)
async def written(face: Face, request: edit_requests.EditWritten) -> None:
    face.edit(request.edit).placed(request.problem)
