"""The markers of a chat template, found without its vocabulary: what looks like one in what it writes.

Owns that guess, for a template whose model is not here yet, and for tests. With a vocabulary its own tokens
are taken.
"""

import contextlib
import re
from collections.abc import Sequence

from vivace.models.families.template import probes
from vivace.models.families.template.probes import answer_of, call_of, result_of, said
from vivace.models.families.template.sandbox import Template, TemplateError
from vivace.models.tokenizer import Vocabulary

_LOOKS = re.compile(
    r"<[|｜][^<>|｜\s]{1,40}[|｜]>|<\|[a-z_]{1,30}>|<[a-z_]{1,30}\|>|<｜[^<>\s]{1,40}>|\[/?[A-Z_]{2,30}\]|\[gMASK\]|"
    r"</?s>|<sop>|<bos>|<eos>|</?(?:start|end)_of_[a-z]+>|</?think(?:ing)?>|</?tool_(?:call|response|calls)>|"
    r"<SPECIAL_\d+>|</?seed:[a-z_]+>|<sep>|\]~!b\[|\]~b\]|\[e~\[|<(?:beginning|end)_of_sentence>|"
    r"</?(?:role|minimax:tool_call)>|〈\|[A-Z]+\|〉|</?(?:user|assistant|system)>|</?[a-z_]+:opensource>"
)


def names_in(template: Template) -> tuple[str, ...]:
    """Return what looks like the name of a control token or a marker."""
    texts = [*template.texts, *written_by(template, Vocabulary({}, bos="<s>", eos="</s>"))]
    return tuple(sorted({name for text in texts for name in _LOOKS.findall(text)} | {"<s>", "</s>"}))


def written_by(template: Template, vocabulary: Vocabulary) -> Sequence[str]:
    """Return what the template writes of plain conversations."""
    call = call_of(probes.TOOL_NAME, {probes.KEY: probes.VALUE}, "abcdef123", is_text=False)
    turns = [said("user", probes.ASKED), answer_of(probes.ANSWERED), said("user", probes.ASKED_MORE)]
    result = result_of(probes.RESULT, probes.TOOL_NAME, "abcdef123")
    calling = [turns[0], answer_of("", calls=[call]), result]
    names = {"bos_token": vocabulary.bos, "eos_token": vocabulary.eos}
    found: list[str] = []
    for chats in ([said("system", probes.SYSTEM), *turns], turns, calling):
        with contextlib.suppress(TemplateError):
            found.append(template.render(messages=chats, add_generation_prompt=True, **names))
    return found
