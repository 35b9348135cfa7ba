"""Whether a message is a question to answer or an instruction to change code.

Owns the decision. Words decide where they can, small talk included; where they do not, the model scores two
continuations and generates nothing. tests/agent/conversation/message/test_intent.py holds a labelled set.
Does not own which file is meant (`repository`).
"""

import re

from vivace.agent.edits.find.locate import Scorer
from vivace.agent.events.turn import IntentDecided, TurnKind
from vivace.agent.prompting import begun_answer, read_prompt, user

LABELS: tuple[tuple[str, TurnKind], ...] = (("question", "question"), ("change", "edit"))
MAX_CHARS = 2000  # of a message that the model is shown

_VERBS = (
    r"accept|add|allow|append|apply|annotate|bump|cache|capitali[sz]e|change|clean|comment|convert|correct"
    r"|declare|decrease|delete|deprecate|disable|document|drop|enable|ensure|extend|extract|finish|fix|format"
    r"|give|guard|handle|implement|improve|increase|inline|insert|introduce|invert|keep|let|limit|log|lower"
    r"|make|merge|mock|move|negate|optimi[sz]e|parametri[sz]e|parse|patch|port|print|raise|reduce|refactor"
    r"|reject|remove|rename|reorder|replace|return|revert|rewrite|round|set|shorten|simplify|skip|sort"
    r"|speed up|split|stop|store|strip|support|swap|switch|translate|trim|try|turn|type|undo|unify|update|use"
    r"|validate|wrap|don't|do not|never|do (?:the same|it|that|this)\b"
    r"|(?:write|create) (?:\w+ ){0,3}?(?:function|method|class|tests?|file|module|docstrings?|script)"
)
_LEAD = r"please|ok(?:ay)?|now|then|next|also|and|just|instead|first|actually|great|good|thanks|yes|no|@\S+"
_POLITE = rf"(?>(?:{_LEAD})[,.:!]?\s+){{0,8}}+"  # never taken back: that doubled the time with each "@x. "
_IMPERATIVE = re.compile(rf"^{_POLITE}(?:{_VERBS})\b(?!\s*[:?]?\s*$)", re.I)
_LATER = re.compile(rf"[,;.:] {_POLITE}(?:{_VERBS})\b", re.I)  # "it is too slow, make it faster"
_REQUEST = re.compile(
    rf"^{_POLITE}(?:can|could|would|will) you (?:\w+ly )?(?:please )?(?:{_VERBS})\b"
    rf"|^{_POLITE}(?:i(?:'d| would)? (?:want|need|like)(?: you)? to|i want|let's|we should|you should"
    rf"|go ahead and)\s+(?:{_VERBS})\b",
    re.I,
)
_DEMAND = re.compile(r"\b(?:should|must|needs to|shall|has to|ought to)\b", re.I)
_ASKING = re.compile(
    rf"^{_POLITE}(?:what|what's|whats|why|how|when|where|which|who|whose|is|are|was|were|does|did|has|have|am"
    r"|do (?:we|i|you|they|any|these|those|all)|explain|describe|tell me|show me|summari[sz]e|compare|list"
    r"|review|find|count|walk me|help me understand"
    r"|give me (?:an?|the|some) (?:\w+ )?(?:overview|explanation|summary|example|idea|hint|list))\b",
    re.I,
)
_CASE = re.compile(rf"^{_POLITE}when(?:ever)?\b[^,.?]*,", re.I)  # "when it is empty, it should fail"
_ABLE = re.compile(rf"^{_POLITE}(?:can|could|would|will|should|may|might|must)\b", re.I)
_TALK = (
    r"hi|hello|hey|hiya|yo|howdy|greetings|good (?:morning|afternoon|evening|night|day)|morning|welcome back"
    r"|thanks|thank you|thankyou|thx|ty|cheers|much appreciated|thanks for (?:that|this|your help|the help)"
    r"|ok|okay|okey|k|kk|alright|all right|right|fine|sure|yes|yeah|yep|yup|no|nope|nah|not yet|maybe"
    r"|got it|i see|i understand|understood|makes sense|that (?:makes sense|helps|works|helped|is all)"
    r"|that's (?:all|it|fine|right|good|great|perfect)|never ?mind|no problem|no worries|you're welcome"
    r"|good|great|nice|cool|perfect|awesome|excellent|wonderful|amazing|brilliant|lovely|neat|wow|super"
    r"|well done|good job|good work|great job|great work|nice work|nice one"
    r"|haha|lol|hm+|oh|ah|ouch|oops|sorry|bye|goodbye|see you|see ya|later|test|testing|ping"
    r"|hallo|guten (?:morgen|tag|abend)|moin|servus|danke(?: schön| dir)?|vielen dank|tschüss|alles klar"
    r"|bonjour|salut|merci(?: beaucoup)?|hola|gracias|ciao|grazie|olá|obrigad[oa]"
)
_ADDED = (
    r"very much|so much|a lot|again|there|everyone|all|mate|friend|vivace|then|indeed|for now|man|please|dir"
)
_BACKGROUND = re.compile(
    rf"{_POLITE}((?:{_VERBS}|do|finish|complete|continue|go on|run|work on|write|create|find)\b.*?)"
    r"(?<![, ])[, ]++in the background[.!]?",
    re.I | re.S,
)
_SMALL_TALK = re.compile(rf"(?:(?:{_TALK}|{_ADDED})(?: |$))*")
_SPOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
MAX_TALK_CHARS = 80  # longer messages are about something


def intent_by_words(text: str) -> TurnKind | None:
    """Return what the words alone say, or None where they do not decide."""
    said = text.strip()
    if is_small_talk(said):
        return "question"
    is_asked = said.endswith("?")
    if _REQUEST.search(said):
        return "edit"
    if _CASE.search(said) and not is_asked and (_DEMAND.search(said) or _LATER.search(said)):
        return "edit"
    if _ASKING.search(said):
        return "question"
    if _ABLE.search(said):
        return "question" if is_asked else None
    if is_asked:
        return None if _IMPERATIVE.search(said) else "question"
    is_told = _IMPERATIVE.search(said) or _DEMAND.search(said) or _LATER.search(said)
    return "edit" if is_told else None


def background_part(text: str) -> str:
    """Return what is to be done in the background, where a message says so; "" if it does not."""
    found = _BACKGROUND.fullmatch(text.strip())
    return found[1].strip() if found else ""


def is_small_talk(text: str) -> bool:
    """Return whether a message only greets, thanks or agrees. It is answered, whatever a model thinks."""
    if len(text) > MAX_TALK_CHARS:
        return False
    return _SMALL_TALK.fullmatch(" ".join(_SPOKEN.findall(text.lower()))) is not None


async def decide_intent(scorer: Scorer, text: str) -> IntentDecided:
    """Return what the message is, by its words or else by the model's score."""
    if kind := intent_by_words(text):
        return IntentDecided(kind, "words")
    messages = [*read_prompt("intent"), user(text[:MAX_CHARS]), begun_answer("")]
    scores = await scorer.score(messages, [label for label, _ in LABELS])
    return IntentDecided(LABELS[scores.index(max(scores))][1], "model")
