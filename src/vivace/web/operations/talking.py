"""Requests about one open conversation.

Owns nothing but the way from a request to the conversation's method. A turn that a face begins belongs to the
conversation, not to the face.
"""

import asyncio

from vivace.web.face import Face
from vivace.web.messages import conversation_requests, question_requests
from vivace.web.messages.answers import ContextCounted, Prompted, Snapshot, Text, TurnNamed
from vivace.web.operations.arriving import checked_folder
from vivace.web.operations.table import answers


@answers(conversation_requests.ConversationOpen)
async def open_conversation(face: Face, request: conversation_requests.ConversationOpen) -> Snapshot:
    folder = await asyncio.to_thread(checked_folder, request.folder) if request.folder else face.folder
    live = await face.host.open(request.conversation, folder, face.name)
    face.conversations[live.id] = live
    return live.join(face, request.epoch, request.after)


@answers(conversation_requests.ConversationClose)
async def close(face: Face, request: conversation_requests.ConversationClose) -> None:
    live = face.conversation(request.conversation)
    del face.conversations[live.id]
    live.leave(face)
    face.host.look_around()


@answers(conversation_requests.ConversationSend)
async def send(face: Face, request: conversation_requests.ConversationSend) -> TurnNamed:
    live = face.conversation(request.conversation)
    return TurnNamed(turn=await live.send(request.text, request.mentions, request.kind))


@answers(conversation_requests.ConversationSteer)
async def steer(face: Face, request: conversation_requests.ConversationSteer) -> None:
    await face.conversation(request.conversation).steer(request.text)


@answers(conversation_requests.QueueAdd)
async def queue_add(face: Face, request: conversation_requests.QueueAdd) -> None:
    live = face.conversation(request.conversation)
    if request.mentions is None:
        await live.check(request.text)
    live.talk.queue.add(request.text, request.mentions)


@answers(conversation_requests.QueueEdit)
async def queue_edit(face: Face, request: conversation_requests.QueueEdit) -> None:
    live = face.conversation(request.conversation)
    await live.check(request.text)
    live.talk.queue.change(request.message, request.text)


@answers(conversation_requests.QueueRemove)
async def queue_remove(face: Face, request: conversation_requests.QueueRemove) -> None:
    face.conversation(request.conversation).talk.queue.remove(request.message)


@answers(conversation_requests.ConversationStop)
async def stop(face: Face, request: conversation_requests.ConversationStop) -> None:
    face.conversation(request.conversation).talk.stop()


@answers(conversation_requests.AnswerNow)
async def answer_now(face: Face, request: conversation_requests.AnswerNow) -> None:
    face.conversation(request.conversation).talk.answer_now()


@answers(conversation_requests.Prefill)
async def prefill(face: Face, request: conversation_requests.Prefill) -> None:
    face.conversation(request.conversation).type(request.draft, request.mentions)


@answers(question_requests.Decide)
async def decide(face: Face, request: question_requests.Decide) -> None:
    face.conversation(request.conversation).broadcast.questions.answer(request)


@answers(question_requests.Resolve)
async def resolve(face: Face, request: question_requests.Resolve) -> None:
    face.conversation(request.conversation).broadcast.questions.answer(request)


@answers(question_requests.Approve)
async def approve(face: Face, request: question_requests.Approve) -> None:
    face.conversation(request.conversation).broadcast.questions.answer(request)


@answers(conversation_requests.Undo)
async def undo(face: Face, request: conversation_requests.Undo) -> None:
    await face.conversation(request.conversation).talk.undo(request.entry)


@answers(conversation_requests.Redo)
async def redo(face: Face, request: conversation_requests.Redo) -> None:
    await face.conversation(request.conversation).talk.redo(request.entry)


@answers(conversation_requests.Rewind)
async def rewind(face: Face, request: conversation_requests.Rewind) -> None:
    talk = face.conversation(request.conversation).talk
    await talk.rewind(request.turn, code=request.code, talk=request.talk)


@answers(conversation_requests.Compact)
async def compact(face: Face, request: conversation_requests.Compact) -> None:
    talk = face.conversation(request.conversation).talk
    if request.is_undone:
        await talk.undo_compact()
    else:
        await talk.compact()


@answers(conversation_requests.Context)
async def context(face: Face, request: conversation_requests.Context) -> ContextCounted:
    use = await face.conversation(request.conversation).talk.context(request.draft)
    parts = [Prompted(name=part.name, tokens=part.tokens, text=part.text[:200]) for part in use.parts]
    return ContextCounted(parts=parts, used_tokens=use.used_tokens, window_tokens=use.window_tokens)


@answers(conversation_requests.Btw)
async def btw(face: Face, request: conversation_requests.Btw) -> Text:
    return Text(text=await face.conversation(request.conversation).talk.btw(request.question))


@answers(conversation_requests.NoteRequest)
async def note(face: Face, request: conversation_requests.NoteRequest) -> None:
    face.conversation(request.conversation).talk.note(request.text)


@answers(conversation_requests.Export)
async def export(face: Face, request: conversation_requests.Export) -> Text:
    return Text(text=face.conversation(request.conversation).talk.export())


@answers(conversation_requests.ConversationSet)
async def set_options(face: Face, request: conversation_requests.ConversationSet) -> None:
    live = face.conversation(request.conversation)
    live.use(request.model, request.effort, request.policy, request.approval)
