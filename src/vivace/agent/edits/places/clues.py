"""What a text says about the place it means: code spans, names, messages, options, tracebacks, files.

Owns reading the text as people file it. Does not own which file or unit fits (`ranking`).
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vivace.agent.edits.places.splitting import word_counts

NAME_WEIGHT = 3.0  # of a name in code, against 1 for a word of prose
STRING_WEIGHT = 0.6  # of what stands in quotes in code: mostly data of an example
OPTION_WEIGHT = 3.0
MAX_COUNT = 2  # a word that comes often says little more than one that comes twice

_BLOCK = re.compile(
    r"^[ \t]*+(?P<fence>`{3,}+|~{3,}+)[^\n]*+\n(?P<body>.*?)(?:\n[ \t]*+(?P=fence)|\Z)", re.S | re.M
)
_SPAN = re.compile(r"(?<!`)(?P<ticks>`{1,2}+)(?P<body>[^`\n]++)(?P=ticks)(?!`)")
_QUOTED = re.compile(r"\"([^\"\n]{3,200})\"|(?<!\w)'([^'\n]{3,200})'(?!\w)|“([^“”\n]{3,200})”")
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_DOTTED = re.compile(r"[^\W\d]\w*(?:(?:\.|::|#)[^\W\d]\w*)*")
_NAME_LIKE = re.compile(r"\w*_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*")
_SUBJECT = (
    re.compile(  # whom a request is about: "parse should accept bytes", "let main print it", "… in load"
        r"(?:^|[.!?;:,]\s+|\n\s*)(?:please\s+)?(?P<first>[^\W\d]\w*)\s+"
        r"(?:should|shall|must|may|can|could|cannot|(?:need|ha)s? to|ought to)\b"
        r"|\b(?:make|let|have|teach|allow)\s+(?P<told>[^\W\d]\w*)\s+[a-z]"
        r"|\b(?:in|of)\s+(?P<last>[^\W\d]\w*)\s*(?=[.;,:]|$)",
        re.I,
    )
)
SUBJECT_WEIGHT = 0.7  # of a name that the request is about, where it may be an English word
_SPECIAL = {  # what people call the special methods of Python
    "__eq__": r"equal(?:ity)?|compar\w+|==|!=",
    "__hash__": r"hash(?:ing|es|able)?",
    "__repr__": r"repr|representation",
    "__str__": r"str\(|string representation",
    "__len__": r"len\(|length",
    "__getitem__": r"slic\w+|index(?:ing|ed)",
    "__iter__": r"iterat\w+",
    "__contains__": r"membership|`?in`? operator",
    "__call__": r"callable|when called",
    "__enter__": r"context manager|`with`",
    "__init__": r"constructor|initiali[sz]\w+",
}
_PYTHON_FRAME = re.compile(r"File \"([^\"\n]+)\", line (\d+)(?:, in ([\w.<>]+))?")
_OTHER_FRAME = re.compile(r"\bat (?:([\w.<>$]+) \()?([^\s()]+\.\w{1,4}):(\d+)(?::\d+)?\)?")
_PATH = re.compile(r"(?<![\w@./+-])[\w./+-]++")
_ENDING = re.compile(r"[\w-]\.[A-Za-z][A-Za-z+]{0,4}\Z")
_NOT_CODE = r"(?:unit |regression |failing |the |new |more |existing |our |its )*"
_ASKED_BESIDE = re.compile(
    r"\b(?:add|write|create|extend|update|fix|repair|change|edit|rename|remove|delete|move|make|correct|improve"
    rf"|rewrite|simplify|document)\b(?: (?:an?|the|all|some|another|[\w`-]+))? ?{_NOT_CODE}"
    r"(?:tests?\b(?! (?:whether|if|of whether))|test (?:cases?|files?|suites?)|examples?|demos?|benchmarks?"
    r"|docs|documentation|tutorials?)\b",
    re.I,
)
_BESIDE_TEXT = """
test tests __tests__ spec specs testdata fixtures example examples demo demos sample samples doc
docs documentation tutorial tutorials benchmark benchmarks bench benches
"""
_BESIDE_PARTS = frozenset(_BESIDE_TEXT.split())
_BESIDE_NAME = re.compile(r"^(?:test_.*|.*_tests?|conftest|.*\.(?:test|spec)|tests?|.*[a-z0-9]Test)$")


@dataclass(frozen=True)
class Frame:
    """A line of a traceback."""

    path: str
    line: int
    name: str


@dataclass(frozen=True)
class Clues:
    """What a text holds that can be found in code."""

    words: dict[str, float]  # and how much each weighs
    names: dict[str, float]  # dotted names in code or written like code: `Reader.read`
    phrases: tuple[str, ...]  # messages in quotes and option names, to be found as they are
    frames: tuple[Frame, ...]  # the innermost last
    files: tuple[str, ...]  # names of files, with folders or without
    asks_for_beside: bool  # tests, examples or documentation are what is to be changed

    @property
    def modules(self) -> dict[str, float]:
        """Return the parts of dotted names, any of which may be a module: `places.clues.read`."""
        found: dict[str, float] = {}
        for name, weight in self.names.items():
            parts = re.split(r"\W+", name)
            for part in parts if len(parts) > 1 else ():
                found[part] = max(weight, found.get(part, 0.0))
        return found


def read_clues(text: str) -> Clues:
    """Return what the text says about a place."""
    code = [found["body"] for found in _BLOCK.finditer(text)]
    rest = _BLOCK.sub(" ", text)
    spans = [found["body"] for found in _SPAN.finditer(rest)]
    prose = _SPAN.sub(" ", rest)
    names = _names(prose, spans, code)
    frames = tuple(_frames(text))
    phrases = (*_quoted(prose), *_quoted("\n".join(spans)), *dict.fromkeys(_OPTION.findall(text)))
    return Clues(
        words=_weighted(prose, [*spans, *code], phrases),
        names=names,
        phrases=phrases,
        frames=frames,
        files=tuple(dict.fromkeys(_files(text))),
        asks_for_beside=_ASKED_BESIDE.search(prose) is not None,
    )


def _files(text: str) -> Iterator[str]:
    """Yield what looks like the name of a file, with or without its folders."""
    for found in _PATH.findall(text):
        name = found.lstrip("/").rstrip("./-")
        if _ENDING.search(name):
            yield name


def is_beside(path: str) -> bool:
    """Return whether a file is a test, an example or documentation rather than what is tested."""
    folder, _, name = path.rpartition("/")
    if _is_folder_beside(folder):
        return True
    is_near = "test" in name or "Test" in name or "spec" in name  # the pattern takes ten times as long
    return is_near and _BESIDE_NAME.match(name.rpartition(".")[0] or name) is not None


@lru_cache(maxsize=100_000)
def _is_folder_beside(folder: str) -> bool:
    return any(part.lower() in _BESIDE_PARTS for part in folder.split("/"))


def _weighted(prose: str, code: Sequence[str], phrases: Sequence[str]) -> dict[str, float]:
    weights: defaultdict[str, float] = defaultdict(float)
    for word, count in word_counts(prose).items():
        weights[word] += min(count, MAX_COUNT)
    in_code = "\n".join(code)
    for word, count in word_counts(_QUOTED.sub(" ", in_code)).items():
        weights[word] += NAME_WEIGHT * min(count, MAX_COUNT)
    for quoted in _quoted(in_code):
        for word in word_counts(quoted):
            weights[word] += STRING_WEIGHT
    for name, said in _SPECIAL.items():
        if re.search(rf"(?<!\w)(?:{said})", "\n".join([prose, *code]), re.I):
            weights[name] += 1
    for phrase in phrases:
        if phrase.startswith("-"):
            for word in word_counts(phrase.replace("-", "_").strip("_")):
                weights[word] += OPTION_WEIGHT
    return dict(weights)


def _names(prose: str, spans: Sequence[str], blocks: Sequence[str]) -> dict[str, float]:
    """Return the dotted names and how surely each means code: alone in a span, in one, or in prose."""
    found: dict[str, float] = {}

    def add(name: str, weight: float) -> None:
        found[name] = max(weight, found.get(name, 0.0))

    for span in spans:
        bare = re.sub(r"\(.*\)$", "", span.strip())
        is_alone = _DOTTED.fullmatch(bare) is not None
        for name in _DOTTED.findall(_QUOTED.sub(" ", span)):
            add(name, 1.0 if is_alone else 0.7)
    for block in blocks:
        for name in _DOTTED.findall(_QUOTED.sub(" ", block)):
            add(name, 0.5)
    for found_name in _DOTTED.finditer(prose):
        name = found_name[0]
        is_called = prose[found_name.end() : found_name.end() + 1] == "("
        if (
            is_called
            or _NAME_LIKE.fullmatch(re.split(r"\W+", name)[-1])
            or ("." in name and name[0].islower())
        ):
            add(name, 0.9 if is_called or "." in name else 0.7)
    for name in subjects(prose):
        add(name, SUBJECT_WEIGHT)
    return {name: weight for name, weight in found.items() if len(name) > 1}


def subjects(text: str) -> set[str]:
    """Return the words that requests are about, which are names only if a unit has one: "parse should …"."""
    return {found[found.lastgroup] for found in _SUBJECT.finditer(text) if found.lastgroup}


def _quoted(text: str) -> list[str]:
    found = (next(filter(None, groups)) for groups in _QUOTED.findall(text))
    return list(dict.fromkeys(found))


def _frames(text: str) -> Iterator[Frame]:
    for path, line, name in _PYTHON_FRAME.findall(text):
        yield Frame(path, int(line), name)
    others = [Frame(path, int(line), name) for name, path, line in _OTHER_FRAME.findall(text)]
    yield from reversed(others)  # other languages write the innermost first
