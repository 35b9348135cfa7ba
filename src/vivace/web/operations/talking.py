"""Requests about one open conversation.

Owns nothing but the way from a request to the conversation's method. A turn that a face begins belongs to the
conversation, not to the face.
"""

from vivace.web.face import Face
from vivace.web.messages import requests
from vivace.web.messages.answers import ContextCounted, Prompted, Snapshot, Text, TurnNamed
from vivace.web.operations.arriving import checked_folder
from vivace.web.operations.table import answers


@answers(requests.ConversationOpen)
async def open_conversation(face: Face, request: requests.ConversationOpen) -> Snapshot:
    folder = checked_folder(request.folder) if request.folder else face.folder
    live = await face.host.open(request.conversation, folder, face.name)
    face.conversations[live.id] = live
    return live.join(face, request.epoch, request.after)


@answers(requests.ConversationClose)
async def close(face: Face, request: requests.ConversationClose) -> None:
    live = face.conversation(request.conversation)
    del face.conversations[live.id]
    live.leave(face)
    face.host.look_around()


@answers(requests.ConversationSend)
async def send(face: Face, request: requests.ConversationSend) -> TurnNamed:
    live = face.conversation(request.conversation)
    return TurnNamed(turn=await live.send(request.text, request.mentions, request.kind))


@answers(requests.ConversationSteer)
async def steer(face: Face, request: requests.ConversationSteer) -> None:
    await face.conversation(request.conversation).steer(request.text)


@answers(requests.QueueAdd)
async def queue_add(face: Face, request: requests.QueueAdd) -> None:
    talk = face.conversation(request.conversation).talk
    talk.queue.add(request.text, request.mentions)


@answers(requests.QueueEdit)
async def queue_edit(face: Face, request: requests.QueueEdit) -> None:
    face.conversation(request.conversation).talk.queue.change(request.message, request.text)


@answers(requests.QueueRemove)
async def queue_remove(face: Face, request: requests.QueueRemove) -> None:
    face.conversation(request.conversation).talk.queue.remove(request.message)


@answers(requests.ConversationStop)
async def stop(face: Face, request: requests.ConversationStop) -> None:
    face.conversation(request.conversation).talk.stop()


@answers(requests.AnswerNow)
async def answer_now(face: Face, request: requests.AnswerNow) -> None:
    face.conversation(request.conversation).talk.answer_now()


@answers(requests.Prefill)
async def prefill(face: Face, request: requests.Prefill) -> None:
    face.conversation(request.conversation).type(request.draft, request.mentions)


@answers(requests.Decide)
async def decide(face: Face, request: requests.Decide) -> None:
    face.conversation(request.conversation).broadcast.questions.answer(request)


@answers(requests.Resolve)
async def resolve(face: Face, request: requests.Resolve) -> None:
    face.conversation(request.conversation).broadcast.questions.answer(request)


@answers(requests.Approve)
async def approve(face: Face, request: requests.Approve) -> None:
    face.conversation(request.conversation).broadcast.questions.answer(request)


@answers(requests.Undo)
async def undo(face: Face, request: requests.Undo) -> None:
    await face.conversation(request.conversation).talk.undo(request.entry)


@answers(requests.Redo)
async def redo(face: Face, request: requests.Redo) -> None:
    await face.conversation(request.conversation).talk.redo(request.entry)


@answers(requests.Rewind)
async def rewind(face: Face, request: requests.Rewind) -> None:
    talk = face.conversation(request.conversation).talk
    await talk.rewind(request.turn, code=request.code, talk=request.talk)


@answers(requests.Compact)
async def compact(face: Face, request: requests.Compact) -> None:
    talk = face.conversation(request.conversation).talk
    if request.is_undone:
        await talk.undo_compact()
    else:
        await talk.compact()


@answers(requests.Context)
async def context(face: Face, request: requests.Context) -> ContextCounted:
    use = await face.conversation(request.conversation).talk.context(request.draft)
    parts = [Prompted(name=part.name, tokens=part.tokens, text=part.text[:200]) for part in use.parts]
    return ContextCounted(parts=parts, used_tokens=use.used_tokens, window_tokens=use.window_tokens)


@answers(requests.Btw)
async def btw(face: Face, request: requests.Btw) -> Text:
    return Text(text=await face.conversation(request.conversation).talk.btw(request.question))


@answers(requests.NoteRequest)
async def note(face: Face, request: requests.NoteRequest) -> None:
    face.conversation(request.conversation).talk.note(request.text)


@answers(requests.Export)
async def export(face: Face, request: requests.Export) -> Text:
    return Text(text=face.conversation(request.conversation).talk.export())


@answers(requests.ConversationSet)
async def set_options(face: Face, request: requests.ConversationSet) -> None:
    live = face.conversation(request.conversation)
    live.use(request.model, request.effort, request.policy, request.approval)
