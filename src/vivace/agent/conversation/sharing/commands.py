"""How a command of an attached face becomes a call of the conversation.

Owns which command is which call, and what answers it. Does not own the commands' shapes (`wire.from_face`).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from vivace.agent.conversation.sharing.wire import from_face
from vivace.agent.conversation.sharing.wire.event_codec import EventDecoder
from vivace.agent.conversation.talk import Talk
from vivace.errors import UsageError

PrefillDraft = Callable[[str, Sequence[str] | None], Awaitable[None]]  # of a face that is attached


async def run_command(talk: Talk, prefill: PrefillDraft, command: from_face.AnyCommand) -> Any:
    """Do what the command says. Return what answers it, as plain values or structs."""
    match command:
        case from_face.Send(text=text, mentions=mentions, kind=kind):
            return (await talk.send(text, mentions, kind=kind)).number
        case from_face.OfferProposal(text=text, sources=sources, proposal=proposal):
            decoder = EventDecoder()
            for source in sources:
                decoder.learn(source)
            decoder.learn(proposal)
            return (await talk.offer(text, decoder.proposal(proposal.number))).number
        case from_face.Steer(text=text):
            await talk.steer(text)
        case from_face.RunQueue():
            await talk.run_queue()
        case from_face.Prefill(draft=draft, mentions=mentions):
            await prefill(draft, mentions)
        case from_face.AskBeside(question=question):
            return await talk.btw(question)
        case from_face.CountContext(draft=draft, mentions=mentions):
            return await talk.context(draft, mentions)
        case from_face.Stop():
            talk.stop()
        case from_face.AnswerNow():
            talk.answer_now()
        case _:
            return await _change(talk, command)
    return None


async def _change(talk: Talk, command: from_face.AnyCommand) -> Any:
    match command:
        case from_face.AddNote(text=text):
            talk.note(text)
        case from_face.QueueAdd(text=text, mentions=mentions):
            talk.queue.add(text, mentions)
        case from_face.QueueChange(message=message, text=text, mentions=mentions):
            talk.queue.change(message, text, mentions)
        case from_face.QueueRemove(message=message):
            talk.queue.remove(message)
        case from_face.UseOptions(options=options):
            talk.use(options)
        case from_face.UseModel(model=model):
            talk.model = model
        case from_face.Rename(title=title):
            await talk.rename(title)
        case from_face.Rewind(turn=turn, code=code, talk=words):
            return await talk.rewind(turn, code=code, talk=words)
        case from_face.Undo(entry=entry):
            return await talk.undo(entry)
        case from_face.Redo(entry=entry):
            return await talk.redo(entry)
        case from_face.Compact():
            return await talk.compact()
        case from_face.UndoCompact():
            await talk.undo_compact()
        case _:
            raise UsageError(f"There is no {type(command).__name__}.")
    return None
