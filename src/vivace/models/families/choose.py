"""Which family a model belongs to.

Owns the list of families written by hand, and how a user's file or folder gets one: by hand if that writes
what the chat template inside the file writes, else made from the template; without a template, by its
architecture. The catalog's cards name the family of their models.
"""

import contextlib
import ctypes
from collections.abc import Callable
from pathlib import Path

import msgspec

from vivace.errors import StartError
from vivace.models.catalog import pinned
from vivace.models.families.base import Family
from vivace.models.families.harmony.family import Harmony
from vivace.models.families.llama3 import Llama3
from vivace.models.families.mistral import Mistral
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.qwen3coder import Qwen3Coder
from vivace.models.families.qwen25 import QWEN_SYSTEM, SMOLLM_SYSTEM, Qwen25
from vivace.models.folder import template_of_folder
from vivace.models.tokenizer import SCRIPTED, Tokenizer, script_of

FAMILIES: dict[str, Callable[[Tokenizer], Family]] = {
    "chatml": Qwen25,
    "smollm2": lambda tokenizer: Qwen25(tokenizer, default_system=SMOLLM_SYSTEM),
    "qwen2.5": lambda tokenizer: Qwen25(tokenizer, default_system=QWEN_SYSTEM),
    "qwen3": Qwen3,
    "qwen3-thinking": lambda tokenizer: Qwen3(tokenizer, thinking="always"),
    "qwen3-instruct": lambda tokenizer: Qwen3(tokenizer, thinking="never"),
    "qwen3-coder": Qwen3Coder,
    "qwen3-coder-thinking": lambda tokenizer: Qwen3Coder(tokenizer, thinking="optional"),
    "llama3": Llama3,
    "mistral": Mistral,
    "harmony": Harmony,
}
# Those that may stand for a template, by its format of calls. Only one that writes the same tokens does.
BY_HAND = {
    "hermes": ("qwen2.5", "smollm2", "qwen3", "qwen3-thinking", "qwen3-instruct"),
    "qwen-coder": ("qwen3-coder",),
    "llama": ("llama3",),
    "mistral": ("mistral",),
}
ARCHITECTURES = {
    "qwen2": "qwen2.5",
    "qwen2moe": "qwen2.5",
    "qwen2_moe": "qwen2.5",  # Hugging Face's spelling
    "qwen3": "qwen3",
    "qwen3moe": "qwen3",
    "qwen3_moe": "qwen3",
    "gpt-oss": "harmony",
    "gpt_oss": "harmony",
    "llama": "llama3",
}


class Known(msgspec.Struct, frozen=True):
    """What is known of a chat template before its model is here."""

    family: str
    refusal: str = ""  # why it cannot be spoken; "": it can
    notes: tuple[str, ...] = ()  # what is not as its template has it, each a sentence


def family_for(tokenizer: Tokenizer, model_name: str, template: str = "") -> Family:
    """Return the family of a model. `template` (or an architecture) is read from the file if not given."""
    kind = "" if template else _named(model_name)
    told = "" if kind else template or _template_for(model_name)
    try:
        if not kind and is_template(told):
            return _of_template(tokenizer, told)
        return FAMILIES[kind or ARCHITECTURES.get(told, "chatml")](tokenizer)
    except (StartError, ValueError) as error:
        refusal = f": {error}" if isinstance(error, NotSpoken) else "."
        raise StartError(
            f"The chat format of {model_name} cannot be spoken{refusal}",
            "Choose a model from `vivace models`.",
        ) from error


class NotSpoken(ValueError):
    """A chat template that cannot be held. The text says why."""


def _named(model_name: str) -> str:
    """Return the family of a model that is known by name; "" if its file must say it."""
    if model_name.startswith(SCRIPTED):
        has_script = Path(model_name.removeprefix(SCRIPTED)).is_file()
        return str(script_of(model_name).get("family", "chatml")) if has_script else "chatml"
    card = pinned(model_name)
    return card.family if card and not card.template else ""


def _template_for(model_name: str) -> str:
    """Return the chat template of a model's card or file, or the file's architecture."""
    card = pinned(model_name)
    return card.template if card else template_of(Path(model_name).expanduser())


def is_template(told: str) -> bool:
    """Return whether this is a chat template, and not the name of an architecture."""
    return "{" in told


def known(told: str) -> Known:
    """Return what a chat template, or an architecture, means for a model that is not here yet."""
    if not is_template(told):
        family = ARCHITECTURES.get(told, "")
        return Known(family, "" if family else "it has no chat template.")
    if is_harmony(told):
        return Known("harmony", notes=Harmony.notes)
    from vivace.models.families.template.judging import judge_source
    from vivace.models.families.template.sandbox import TemplateError

    try:
        verdict = judge_source(told)
    except TemplateError as error:
        return Known("template", f"{error}.")
    return Known("template", verdict.refusal and f"{verdict.refusal}.", verdict.notes)


def is_harmony(template: str) -> bool:
    """Return whether a template is gpt-oss's, whose answers are several messages."""
    return all(name in template for name in ("<|start|>", "<|channel|>", "<|message|>", "<|return|>"))


def _of_template(tokenizer: Tokenizer, template: str) -> Family:
    """Return the family that writes what the template writes."""
    if is_harmony(template):
        return Harmony(tokenizer)
    from vivace.models.families.template.family import TemplateFamily
    from vivace.models.families.template.judging import same_tokens
    from vivace.models.families.template.sandbox import TemplateError

    try:
        family = TemplateFamily(tokenizer, template)
    except TemplateError as error:
        raise NotSpoken(f"{error}.") from error
    for kind in BY_HAND.get(family.call_format.name, ()):
        with contextlib.suppress(StartError, ValueError):
            written = FAMILIES[kind](tokenizer)
            if same_tokens(written, family):
                return written
    return family


def template_of(path: Path) -> str:
    """Return the chat template in a GGUF file or a folder, else its architecture; "" without a file."""
    if path.is_dir():
        return template_of_folder(path)
    import llama_cpp as lc  # only who has a file of their own pays for it

    from vivace.models import gguf_vocab

    if not path.is_file():
        return ""
    model = gguf_vocab.load_model(path, vocab_only=True)
    try:
        if template := lc.llama_model_chat_template(model, None):
            return str(template.decode("utf-8", "replace"))
        name = ctypes.create_string_buffer(64)
        count = lc.llama_model_meta_val_str(model, b"general.architecture", name, len(name))
        return name.value.decode() if count > 0 else ""
    finally:
        lc.llama_model_free(model)
