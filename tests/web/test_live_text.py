"""The file while a unit of it is written, as the browser app shows it: run by Node.js, where there is one."""

import json
import random
import shutil
import subprocess
from typing import Any

import pytest

from tests import REPOSITORY, thorough

MODULE = REPOSITORY / "web" / "src" / "files" / "live_text.js"
RUN = """
import { LiveText, changeOf } from %s;
const docOf = (text) => {
  const lines = text.split("\\n");
  const start = (n) => lines.slice(0, n).reduce((sum, line) => sum + line.length + 1, 0);
  return { lines: lines.length, length: text.length, line: (n) => ({ from: start(n - 1) }) };
};
const run = ({ file, first, last, text, cuts }) => {
  const live = new LiveText(file, first, last);
  let shown = live.text;
  let state = live.state;
  const lines = [];
  for (const cut of cuts) {
    live.grow(text.slice(0, cut));
    const { from, to, insert } = changeOf(docOf(shown), live.changeSince(state));
    shown = shown.slice(0, from) + insert + shown.slice(to);
    state = live.state;
    lines.push(live.line);
    if (shown !== live.text) throw new Error(JSON.stringify({ shown, text: live.text, cut }));
  }
  return { shown, lines };
};
let given = "";
for await (const piece of process.stdin) given += piece;
console.log(JSON.stringify(JSON.parse(given).map(run)));
"""

node = shutil.which("node")
pytestmark = pytest.mark.skipif(node is None, reason="Node.js is not installed: apt-get install nodejs")


def played(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is shown at the end of each case."""
    assert node
    script = RUN % json.dumps(MODULE.as_uri())
    command = [node, "--input-type=module", "-e", script]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def case(draw: random.Random) -> dict[str, Any]:
    """Return a file, a unit of it, a new text for the unit, and where the text is cut."""
    words = ["", "    x = 1", "    y = 2", "def f():", "    return x", "    return x + y", "}"]
    lines = [draw.choice(words) for _ in range(draw.randint(1, 30))]
    first = draw.randint(1, len(lines))
    last = draw.randint(first - 1, len(lines))
    new = [line for line in lines[first - 1 : last] if draw.random() > 0.2]
    for _ in range(draw.randint(0, 8)):
        new.insert(draw.randint(0, len(new)), draw.choice(words))
    text = "".join(f"{line}\n" for line in new)
    cuts = sorted(draw.randint(0, len(text)) for _ in range(draw.randint(0, 12)))
    return {"file": "\n".join(lines), "first": first, "last": last, "text": text, "cuts": [*cuts, len(text)]}


def test_changes_add_up_to_the_text() -> None:
    """Wherever the text is cut, each change leads from what was shown to what stands."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    cases = [case(draw) for _ in range(thorough.examples(300))]
    for given, result in zip(cases, played(cases), strict=True):
        before = given["file"].split("\n")[: given["first"] - 1]
        begin = "".join(f"{line}\n" for line in before) + given["text"]
        assert result["shown"].startswith(begin.removesuffix("\n")), (seed, given)


def test_old_lines_go_as_the_new_text_reaches_them() -> None:
    """A line that was changed takes the place of the old one; lines that were not reached stay below."""
    file = "import os\n\ndef f():\n    a = 1\n    b = 2\n    return a\n\nend"
    text = "def f():\n    a = 10\n"
    given = {"file": file, "first": 3, "last": 6, "text": text, "cuts": [len(text)]}
    (result,) = played([given])
    assert result["shown"] == file.replace("a = 1\n", "a = 10\n")
    assert result["lines"] == [4]


def test_a_long_unit_is_followed_line_by_line() -> None:
    """In 2,000 lines, each tenth of which is changed, the new text stands where the old one stood."""
    old = [f"    value_{n} = compute({n})" for n in range(2000)]
    new = [line.replace("compute", "count") if n % 10 == 0 else line for n, line in enumerate(old)]
    text = "".join(f"{line}\n" for line in new[:1500])
    (result,) = played(
        [{"file": "\n".join(old), "first": 1, "last": 2000, "text": text, "cuts": [7000, len(text)]}]
    )
    assert result["shown"] == "\n".join([*new[:1500], *old[1500:]])
