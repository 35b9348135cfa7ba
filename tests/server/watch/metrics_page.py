"""A strict reader of Prometheus' text format, and a clock that tests move: for the tests of metrics."""

import re

from vivace.protocol.shapes.events import Usage, Waterfall
from vivace.protocol.shapes.outcomes import Ended
from vivace.server.watch.metrics import Metrics

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'

Labels = frozenset[tuple[str, str]]


class Family:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.samples: dict[tuple[str, Labels], float] = {}


def parsed(page: bytes) -> dict[str, Family]:
    """Every line accounted for, or an assertion: help, type, then the samples of that family and no other."""
    text = page.decode("utf-8")
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    name, helped = "", ""
    for line in text[:-1].split("\n"):
        if found := re.fullmatch(rf"# HELP ({NAME}) ((?:[^\\]|\\[\\n])*)", line):
            helped = found[1]
            assert helped not in families, "a family is in one piece"
        elif found := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line):
            name = found[1]
            assert name == helped, "help comes first"
            families[name] = Family(found[2])
        else:
            _take_sample(families[name], name, line)
    for name, family in families.items():
        _check(name, family)
    return families


def _take_sample(family: Family, name: str, line: str) -> None:
    found = re.fullmatch(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)", line)
    assert found, line
    pairs = [(label, _plain(value)) for label, value in re.findall(LABEL, found[2] or "")]
    assert len(dict(pairs)) == len(pairs), line
    ends = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
    assert found[1] in {name + end for end in ends}, line
    key = found[1], frozenset(pairs)
    assert key not in family.samples, line
    family.samples[key] = float(line.rsplit(" ", 1)[1])


def _plain(value: str) -> str:
    return re.sub(r'\\(["\\n])', lambda found: "\n" if found[1] == "n" else found[1], value)


def _check(name: str, family: Family) -> None:
    assert name.endswith("_total") == (family.kind == "counter"), name
    if family.kind != "histogram":
        return
    for (sample, labels), count in family.samples.items():
        if sample == f"{name}_count":
            buckets = sorted(
                (float(dict(pairs)["le"]), value)
                for (other, pairs), value in family.samples.items()
                if other == f"{name}_bucket" and labels == {pair for pair in pairs if pair[0] != "le"}
            )
            values = [value for _, value in buckets]
            assert values == sorted(values), "buckets are cumulative"
            assert buckets[-1] == (float("inf"), count)
            assert (f"{name}_sum", labels) in family.samples


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """The sum of the samples that have these labels."""
    whole_name = "vivace:" + re.sub("_(bucket|sum|count)$", "", name)
    metrics.render()
    lines = [line for family in metrics.page.families if family.name == whole_name for line in family.lines()]
    family = parsed("".join(f"{line}\n" for line in lines).encode())[whole_name]
    return sum(
        number
        for (sample, pairs), number in family.samples.items()
        if sample == "vivace:" + name and labels.items() <= set(pairs)
    )


def ended(reason: str = "stop", *, usage: Usage | None = None, waterfall: Waterfall | None = None) -> Ended:
    return Ended(reason, usage or Usage(10, 4, 14), waterfall or Waterfall())
