"""Stand-in until the families are here."""

from vivace.models.template import ChatML
from vivace.models.template import Message as Old
from vivace.models.families.base import Said


class _Plain:
    def feed(self, text):
        return [Said(text)] if text else []

    def control(self, name):
        return []

    def finish(self):
        return []


class _Family:
    controls = {}
    stop_tokens = ()

    def __init__(self, tokenizer):
        self._t = ChatML(tokenizer)

    def render(self, entries, *, tools=(), after=()):
        return self._t.render([Old(e.role, e.text, e.is_open) for e in entries], after=after)

    def answer(self, log, wish):
        return self._t.answer(log)

    def parser(self, wish, log):
        return _Plain()

    def grammar(self, wish):
        return None


def family_for(tokenizer, name):
    return _Family(tokenizer)
