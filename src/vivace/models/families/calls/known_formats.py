"""All formats of calls that we read, as data.

Owns the list; where two formats read the same text, the first is the one that writes so. harmony is none of
them: its calls are messages (see `harmony`).
"""

from collections.abc import Callable, Mapping
from string import ascii_letters

from vivace.models.families.base import Tool
from vivace.models.families.calls.call_format import CallFormat
from vivace.models.families.calls.call_reader import CallReader
from vivace.models.families.calls.gemma_form import GemmaForm
from vivace.models.families.calls.json_call import BareCall, JsonCall, KeyedCall
from vivace.models.families.calls.lark_grammar import JsonForm
from vivace.models.families.calls.named_call import ARGS, CALL, Heading, NamedCall, NamedForm
from vivace.models.families.calls.nested_call import INVOKE, PREFIX, NestedCall
from vivace.models.families.calls.python_call import GemmaCall, PythonCall
from vivace.models.families.calls.reasoning import THINK, THOUGHT
from vivace.models.families.calls.shape_form import ShapeForm, TagForm
from vivace.models.families.calls.text_parser import Style
from vivace.models.families.calls.xml_call import FUNCTION, Tags, XmlCall
from vivace.models.families.calls.xml_form import XmlForm

Read = Callable[[Mapping[str, Tool], bool], CallReader]
OPEN, CLOSE = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"
_HEAD, _TAIL = r'\{"name": ?"NAME", ?"arguments": ?', r" ?\}"


def _named(heading: Heading) -> Read:
    return lambda tools, _: NamedCall(tools, heading)


def _tagged(tags: Tags) -> Read:
    return lambda tools, _: XmlCall(tools, tags)


def _json(tools: Mapping[str, Tool], is_bare: bool) -> CallReader:
    return BareCall(tools) if is_bare else JsonCall(tools)


# ---- a JSON object for each call --------------------------------------------------------------------

LLAMA = CallFormat(
    "llama",
    Style(read=_json, openers=(PYTHON_TAG,), between=";,", is_bare_accepted=True),
    JsonForm(key="parameters"),
    markers=(PYTHON_TAG,),
)
HERMES = CallFormat(
    "hermes",
    Style(read=_json, openers=(OPEN,), closers=(CLOSE,), is_bare_accepted=True),
    JsonForm(key="arguments", begin=f"{OPEN}\n", end=CLOSE),
    opening=f"{OPEN}\n",
    markers=(OPEN, CLOSE, THINK, THOUGHT, "<tool_response>", "</tool_response>"),
)
MINIMAX_M1 = CallFormat(
    "minimax-m1",
    Style(read=lambda tools, _: JsonCall(tools), openers=("<tool_calls>",), closers=("</tool_calls>",)),
    ShapeForm("<tool_calls>\n", _HEAD, _TAIL, separator=r"\n", end=r"\n?</tool_calls>\n?"),
    opening="<tool_calls>\n",
    markers=("<tool_calls>", "</tool_calls>"),
)


def _single(name: str, opener: str, markers: tuple[str, ...]) -> CallFormat:
    """Return a format of one JSON object behind a marker, without an end."""
    style = Style(read=lambda tools, _: JsonCall(tools), openers=(opener,))
    form = ShapeForm(opener, _HEAD, _TAIL, is_group=False)
    return CallFormat(name, style, form, opening=opener, markers=markers)


_SEPARATORS = ("<|message_sep|>", "<|role_sep|>")
GIGACHAT = (
    _single("gigachat-3.1", "<|function_call|>", ("<|function_call|>", *_SEPARATORS)),
    _single("gigachat-3", "<|message_sep|>\n\nfunction call<|role_sep|>\n", _SEPARATORS),
)


# ---- a list of JSON objects -------------------------------------------------------------------------


def _list(
    name: str,
    opener: str,
    closer: str = "",
    *,
    read: Read = lambda tools, _: JsonCall(tools),
    head: str = _HEAD,
    tail: str = _TAIL,
    begin: str = "",
    dropped: tuple[str, ...] = (),
    markers: tuple[str, ...] = (),
) -> CallFormat:
    closers = (closer,) if closer else ()
    style = Style(read=read, openers=(opener,), closers=closers, lead="[", between=",]", dropped=dropped)
    begin = begin or f"{opener.removesuffix('[')}["
    end = rf"\s{{0,8}}\](?:{_escaped(closer)})?" if closer else r"\s{0,8}\]"
    form = ShapeForm(begin, head, tail, separator=r",\s{1,8}", end=end)
    return CallFormat(name, style, form, opening=begin, markers=(*markers, *((opener, *closers)), *dropped))


def _escaped(text: str) -> str:
    return "".join(f"\\{letter}" if letter in r"|[](){}.?*+^$\/" else letter for letter in text)


_COMMAND_HEAD = r'\s{0,8}\{"tool_call_id": ?"[0-9]{1,3}", ?"tool_name": ?"NAME", ?"parameters": ?'
_COMMAND_PLUS_HEAD = r'\s{0,8}\{\s{0,16}"tool_name": ?"NAME",\s{0,16}"parameters": ?'
_MISTRAL_TAIL = r'(?:, "id": "[a-zA-Z0-9]{9}")? ?\}'


def _command(tools: Mapping[str, Tool], _is_bare: bool) -> CallReader:
    return JsonCall(tools, name_key="tool_name")


LISTS = (
    _list("nemotron-2", "<TOOLCALL>", "</TOOLCALL>"),
    _list("tool-calls", "<tool_calls>", "</tool_calls>"),  # Apriel
    _list("tool-call-list", "<|tool_call|>", "<|/tool_call|>"),  # Granite 3, Phi-4
    _list("mistral-list", CALL, tail=_MISTRAL_TAIL),  # Nemo
    _list("firefunction", "functools["),
    _list(
        "apertus", "<|tools_prefix|>", "<|tools_suffix|>",
        read=lambda tools, _: KeyedCall(tools), head=r'\{"NAME": ?',
    ),
    _list(
        "command", "<|START_ACTION|>", "<|END_ACTION|>",
        read=_command, head=_COMMAND_HEAD, begin="<|START_ACTION|>[\n",
        dropped=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    _list(
        "command-plus", "Action:\n```json", "```",
        read=_command, head=_COMMAND_PLUS_HEAD, tail=r"\s{0,8}\}", begin="Action:\n```json\n[\n",
    ),
)  # fmt: skip


# ---- the name, then JSON ----------------------------------------------------------------------------

MISTRAL = CallFormat(
    "mistral",
    Style(read=_named(Heading()), openers=(CALL,), glue=""),
    NamedForm(),
    opening=CALL,
    markers=(CALL, ARGS),
)
MISTRAL_IDS = CallFormat(
    "mistral-ids",
    Style(read=_named(Heading(name=r"(.+?)(?:\[CALL_ID\].*)?")), openers=(CALL,), glue=""),
    ShapeForm(CALL, r"NAME\[CALL_ID\][a-zA-Z0-9]{9}\[ARGS\]", is_group=False),
    opening=CALL,
    markers=(CALL, ARGS, "[CALL_ID]"),
)


def _sections(
    name: str,
    begin: str,
    call: str,
    heading: Heading,
    closers: tuple[str, ...],
    last: str,
    head: str,
    end: str,
) -> CallFormat:
    """Return a format of calls between marks, all of them in a section."""
    style = Style(read=_named(heading), openers=(begin, call), closers=closers, ends=(last,), again="")
    separator, close = rf"{end}\n?{_escaped(call)}", rf"{end}(?:{_escaped(last)})?"
    form = ShapeForm(begin + call, head, separator=separator, end=close)
    marks = (begin, call, heading.mark, closers[0], last)
    return CallFormat(name, style, form, opening=begin + call, markers=marks)


_DS_BEGIN, _DS_CALL, _DS_SEP = "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"
_DS_CLOSE, _DS_END = "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"
_KIMI_CALL, _KIMI_ARGS = "<|tool_call_begin|>", "<|tool_call_argument_begin|>"
_SOLAR_CALL, _SOLAR_NAME, _SOLAR_ARGS = "<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>"
SECTIONS = (
    _sections(
        "deepseek-v3.1", _DS_BEGIN, _DS_CALL, Heading(_DS_SEP, rf"(?:{_DS_CALL})?(.+)"),
        (_DS_CLOSE,), _DS_END, f"NAME{_DS_SEP}", _DS_CLOSE,
    ),
    _sections(
        "deepseek-r1", _DS_BEGIN, _DS_CALL, Heading("```json", rf"(?:{_DS_CALL})?\s*function{_DS_SEP}(.+)"),
        (_DS_CLOSE, "```"), _DS_END, f"function{_DS_SEP}NAME\n```json\n", rf"\n```(?:{_DS_CLOSE})?",
    ),
    _sections(
        "kimi-k2", "<|tool_calls_section_begin|>", _KIMI_CALL,
        Heading(_KIMI_ARGS, rf"(?:{_escaped(_KIMI_CALL)})?\s*(?:functions\.)?(.+?)(?::\d+)?"),
        ("<|tool_call_end|>",), "<|tool_calls_section_end|>",
        rf"functions\.NAME:[0-9]{{1,3}}{_escaped(_KIMI_ARGS)}", r"<\|tool_call_end\|>",
    ),
    _sections(
        "solar", "<|tool_calls|>", _SOLAR_CALL,
        Heading(_SOLAR_ARGS, rf"(?:{_escaped(_SOLAR_CALL)})?.*?{_escaped(_SOLAR_NAME)}(.+)"),
        ("<|tool_call:end|>",), "<|calls|>",
        rf"[a-zA-Z0-9_-]{{1,40}}{_escaped(_SOLAR_NAME)}NAME{_escaped(_SOLAR_ARGS)}", r"<\|tool_call:end\|>",
    ),
)  # fmt: skip
FUNCTIONARY = (
    CallFormat(
        "functionary-3.1",
        Style(read=_named(Heading(">")), openers=(FUNCTION,), closers=("</function>",), again=""),
        ShapeForm(FUNCTION, "NAME>", end=r"\n?</function>", is_group=False),
        opening=FUNCTION,
        markers=(FUNCTION, "</function>"),
    ),
    CallFormat(  # the header of a message ends with `>>>`, too
        "functionary-3.2",
        Style(read=_named(Heading("\n")), openers=(">>>",), dropped=(">>>all\n",), again="", glue=""),
        ShapeForm(">>>", r"NAME\n", is_group=False),
        opening=">>>",
    ),
)


# ---- tags -------------------------------------------------------------------------------------------

QWEN_CODER = CallFormat(
    "qwen-coder",
    Style(
        read=lambda tools, _: XmlCall(tools),
        openers=(OPEN, FUNCTION),
        kept=(FUNCTION,),
        closers=(CLOSE,),
        glue="\n\n",
    ),
    XmlForm(),
    opening=f"{OPEN}\n",
    markers=HERMES.markers,
)


def _tags(
    name: str, tags: Tags, head: str, key: str, *, opener: str = "", glue: str = "\n", is_group: bool = True,
    dropped: tuple[str, ...] = (), line: str = "\n",
) -> CallFormat:  # fmt: skip
    """Return a format of tags, all calls between an opener and a closer, or each of them by itself."""
    openers = (opener, tags.function) if opener else (tags.function,)
    closers = (tags.closer,) if tags.closer else ()
    style = Style(
        read=_tagged(tags), openers=openers, kept=(tags.function,), closers=closers, again="", glue=glue,
        dropped=dropped,
    )  # fmt: skip
    begin = f"{opener}{line}" if opener else tags.function
    end = rf"\n?{_escaped(tags.closer)}" if tags.closer else ""
    form = TagForm(begin, head, end=end, is_group=bool(opener) and is_group, key=key, tags=tags)
    inner = (tags.parameter, tags.end_value, tags.end_function, tags.cut if len(tags.cut) > 1 else "")
    marks = dict.fromkeys((*openers, *closers, *filter(None, inner), *tags.end_name, tags.end_key))
    markers = tuple(mark for mark in marks if len(mark) > 1 and not mark.endswith('"'))
    return CallFormat(name, style, form, opening=begin, markers=(*markers, *dropped))


def _attributes(name: str, prefix: str, block: str, key: str) -> CallFormat:
    """Return a format of tags whose names are attributes: `<invoke name="…">`."""
    tags = Tags(
        function=f'<{prefix}invoke name="',
        parameter=f'<{prefix}parameter name="',
        end_value=f"</{prefix}parameter>",
        end_function=f"</{prefix}invoke>",
        closer=f"</{block}>",
        cut='"',
    )
    head = rf'\n?<{_escaped(prefix)}invoke name="NAME">'
    return _tags(name, tags, head, f'\n<{prefix}parameter name="KEY"{key}>', opener=f"<{block}>", glue="\n\n")


def _arguments(name: str, suffix: str = "") -> CallFormat:
    """Return a format of a key's tags and its value's: `<arg_key>…</arg_key><arg_value>…</arg_value>`."""
    tags = Tags(
        function=f"<tool_call{suffix}>",
        end_name=(f"<tool_sep{suffix}>",) if suffix else ("\n", "<arg_key>", CLOSE),
        parameter=f"<arg_key{suffix}>",
        end_key=f"<arg_value{suffix}>",
        end_value=f"</arg_value{suffix}>",
        end_function=f"</tool_call{suffix}>",
        closer=f"</tool_calls{suffix}>" if suffix else "",
        cut=f"</arg_key{suffix}>",
    )
    key = f"\n<arg_key{suffix}>KEY</arg_key{suffix}>\n<arg_value{suffix}>"
    head = rf"\n?<tool_call{suffix}>NAME<tool_sep{suffix}>" if suffix else "NAME"
    return _tags(name, tags, head, key, opener=f"<tool_calls{suffix}>" if suffix else "")


TAGS = (
    _tags(
        "seed", Tags(closer="</seed:tool_call>"), r"\n?<function=NAME>", "\n<parameter=KEY>",
        opener="<seed:tool_call>", glue="\n\n", is_group=False,
    ),
    _tags(
        "minicpm",
        Tags(
            '<function name="', (">",), '<param name="', ">", "</param>", "</function>",
            cut='"', has_cdata=True,
        ),
        'NAME">', '<param name="KEY">',
    ),
    _tags(
        "kimi-k3",
        Tags(
            '<|open|>call tool="', ("<|sep|>",), '<|open|>argument key="', "<|sep|>",
            "<|close|>argument<|sep|>", "<|close|>call<|sep|>", "<|close|>tools<|sep|>", cut='"',
        ),
        r'<\|open\|>call tool="NAME" index="[0-9]{1,3}"<\|sep\|>',
        '<|open|>argument key="KEY" type="TYPE"<|sep|>', opener="<|open|>tools<|sep|>", line="", glue="",
        dropped=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
    ),
    _attributes("minimax-m2", "", "minimax:tool_call", ""),
    _attributes("deepseek-v3.2", "｜DSML｜", "｜DSML｜function_calls", ' string="STRING"'),
    _attributes("deepseek-v4", "｜DSML｜", "｜DSML｜tool_calls", ' string="STRING"'),
    _attributes("muse", "atem:", "atem:function_calls", ""),
    _arguments("glm"),  # Ling, Laguna, Spark, too
    _arguments("hunyuan", ":opensource"),
)  # fmt: skip


# ---- values that are not JSON -----------------------------------------------------------------------

LFM = CallFormat(
    "lfm",
    Style(
        read=lambda tools, _: PythonCall(tools),
        openers=("<|tool_call_start|>",),
        closers=("<|tool_call_end|>",),
        lead="[",
        between=",]",
        again=ascii_letters + "_",
    ),
    None,
    opening="<|tool_call_start|>[",
    markers=("<|tool_call_start|>", "<|tool_call_end|>"),
)
GEMMA = CallFormat(
    "gemma",
    Style(
        read=lambda tools, _: GemmaCall(tools),
        openers=("<|tool_call>",),
        closers=("<tool_call|>",),
        again="",
        glue="",
    ),
    GemmaForm("<|tool_call>", "", end=r"\n?<tool_call\|>", is_group=False),
    opening="<|tool_call>",
    markers=("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"),
)
MINIMAX_M3 = CallFormat(
    "minimax-m3",
    Style(
        read=lambda tools, _: NestedCall(tools),
        openers=(f"{PREFIX}<tool_call>", INVOKE),
        kept=(INVOKE,),
        closers=(f"{PREFIX}</tool_call>",),
        again="",
        glue="",
    ),
    None,
    opening=f"{PREFIX}<tool_call>\n",
    markers=(PREFIX,),
)
FORMATS: tuple[CallFormat, ...] = (
    LLAMA, HERMES, QWEN_CODER, MISTRAL, MISTRAL_IDS, MINIMAX_M1, *GIGACHAT, *LISTS, *SECTIONS, *FUNCTIONARY,
    *TAGS, LFM, GEMMA, MINIMAX_M3,
)  # fmt: skip
