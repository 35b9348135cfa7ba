"""The part of an instruction that asks for something.

People paste what a function should do behind their request: a docstring, a ticket, an error. Its "Write a
function that …" or "for every class" is no request. Owns where the request ends. Words that only help to
find the code (`places.ranking`) and the prompts take the whole instruction.
"""

import re

_SPECIFICATION = re.compile(r":[ \t]*\n")  # what stands below a line that ends with a colon
_MENDING = re.compile(r"\s*(?:please\s+)?(?:fix|repair|correct|debug|mend|solve)\b", re.I)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*")
_GOING_ON = re.compile(  # a sentence that asks for more, and does not describe
    r"(?:and|also|then|next|finally|besides|afterwards|please|add|remove|delete|rename|move|extract)\b", re.I
)


def request_in(instruction: str) -> str:
    """Return the instruction without what it only describes.

    That is everything below a line ending with a colon. Where a fault is to be mended, it is also each later
    sentence that does not ask for more.
    """
    asked = _SPECIFICATION.split(instruction.strip(), maxsplit=1)[0]
    if not _MENDING.match(asked):
        return asked
    first, *others = _SENTENCE_END.split(asked)
    return " ".join([first, *(each for each in others if _GOING_ON.match(each))])
