"""Content blocks become a message: text stays as it is, files become mentions, the rest is quoted."""

from pathlib import Path

import pytest
from acp import resource_block, text_block
from acp.helpers import embedded_text_resource, resource_link_block
from hypothesis import given
from hypothesis import strategies as st

from vivace.acp.presenting.diffs import unified_contents
from vivace.acp.prompts import Block, read_blocks
from vivace.agent.conversation.message.mentions import mentions_in
from vivace.agent.edits.apply.files import OpenFiles

HERE = Path("/work")


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("file:///work/a.py", "See @a.py."),
        ("file:///work/sub%20folder/a.py", 'See @"sub folder/a.py".'),
        ("file:///work/a.py#L3-9", "See @a.py:3-9."),
        ("file:///work/a.py#L3:9", "See @a.py:3-9."),
        ("file:///work/a.py#L3", "See @a.py:3-3."),
        ("file:///elsewhere/b.py", "See @/elsewhere/b.py."),
        ("file://host/work/a.py", "See[a](file://host/work/a.py)."),
        ("https://example.org/a", "See[a](https://example.org/a)."),
        ("file:///work/a%00.py", "See[a](file:///work/a%00.py)."),
    ],
)
def test_a_link_to_a_file_is_a_mention(uri: str, text: str) -> None:
    """Where it stood; with its lines; what is no file of this machine stays a link."""
    blocks: list[Block] = [text_block("See"), resource_link_block("a", uri), text_block(".")]
    assert read_blocks(blocks, HERE).text.replace(" .", ".") == text


def test_an_embedded_text_that_is_no_file_is_quoted() -> None:
    """With where it came from, in a fence that its own text cannot close."""
    block = resource_block(embedded_text_resource("zed:///rules", "Be\n```\nbrief."))
    assert (
        read_blocks([text_block("Go"), block], HERE).text == "Go\nzed:///rules\n````\nBe\n```\nbrief.\n````"
    )


def test_a_part_of_a_file_is_no_buffer() -> None:
    """A selection is a mention of its lines; only a whole file stands for the file."""
    whole = resource_block(embedded_text_resource("file:///work/a.py", "x = 1\n"))
    part = resource_block(embedded_text_resource("file:///work/b.py#L2-3", "y\nz\n"))
    message = read_blocks([whole, part], HERE)
    assert message.text == "@a.py @b.py:2-3"
    assert message.buffers == {HERE / "a.py": "x = 1\n"}


NAME = st.text(
    st.characters(codec="utf-8", exclude_characters='/\0\n\r"', exclude_categories=["Cs", "Cc"]), min_size=1
)


def can_be_a_file(name: str) -> bool:
    return name not in (".", "..") and len(name.encode()) <= 255


@given(NAME.filter(can_be_a_file))
def test_any_name_of_a_file_is_found_again(name: str) -> None:
    """The mention that stands for a link leads to the very file, whatever it is called."""
    path = HERE / name
    message = read_blocks([text_block("See "), resource_link_block("a", path.as_uri())], HERE)
    files = OpenFiles()
    files.set_buffer(path, "")
    if ":" not in name:
        assert [HERE / each for each in mentions_in(message.text, HERE, files)] == [path]


def test_a_unified_diff_is_shown_by_hunk() -> None:
    """Each hunk of each file, with its old and its new lines; a line that looks like a header is none."""
    diff = """--- a/one.py
+++ b/one.py
@@ -1,2 +1,2 @@
 keep
-old
+new
@@ -9 +9 @@
--- gone
+++ come
--- two.py
+++ two.py
@@ -0,0 +1 @@
+made
"""
    shown = [(each.path, each.old_text, each.new_text) for each in unified_contents(diff, HERE)]
    assert shown == [
        ("/work/one.py", "keep\nold\n", "keep\nnew\n"),
        ("/work/one.py", "-- gone\n", "++ come\n"),
        ("/work/two.py", "", "made\n"),
    ]
