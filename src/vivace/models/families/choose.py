"""Which family a model belongs to.

Owns the list of families, and how a user's file or folder is recognised: by the chat template inside it, or
else by its architecture. The catalog's cards name the family of their models.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path

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


def family_for(tokenizer: Tokenizer, model_name: str, template: str = "") -> Family:
    """Return the family of a model. `template` (or an architecture) is read from the file if not given."""
    try:
        return FAMILIES[_kind(model_name, template)](tokenizer)
    except (StartError, ValueError) as error:
        raise StartError(
            f"The chat format of {model_name} is not known.",
            "Its vocabulary has no tokens of a format that Vivace speaks: ChatML (Qwen), Llama 3, Mistral "
            "(Devstral) or harmony (gpt-oss). Choose a model from `vivace models`.",
        ) from error


def _kind(model_name: str, template: str) -> str:
    if model_name.startswith(SCRIPTED):
        has_script = Path(model_name.removeprefix(SCRIPTED)).is_file()
        return str(script_of(model_name).get("family", "chatml")) if has_script else "chatml"
    if not template and (card := pinned(model_name)):
        return card.family
    return kind_of(template or template_of(Path(model_name).expanduser()))


def is_known(template: str) -> bool:
    """Return whether a chat template, or an architecture, is of a family that we speak."""
    is_harmony = "<|start|>" in template and "<|channel|>" in template
    return (
        is_harmony
        or _is_mistral(template)
        or any(mark in template for mark in ("<|im_start|>", "<|start_header_id|>"))
        or template in ARCHITECTURES
    )


def kind_of(template: str) -> str:
    """Return the name of the family of a chat template or an architecture."""
    if "<|start|>" in template and "<|channel|>" in template:
        return "harmony"
    if "<|start_header_id|>" in template:
        return "llama3"
    if _is_mistral(template):
        return "mistral"
    if "<|im_start|>" not in template:
        return ARCHITECTURES.get(template, "chatml")
    is_optional = "enable_thinking" in template
    if "<function=" in template:
        return "qwen3-coder-thinking" if is_optional else "qwen3-coder"
    if is_optional:
        return "qwen3"
    if r"assistant\n<think>" in template:
        return "qwen3-thinking"
    if "You are Qwen, created by" in template:
        return "qwen2.5"
    if "named SmolLM" in template:
        return "smollm2"
    return "qwen3-instruct" if "<tool_response>" in template else "chatml"


def _is_mistral(template: str) -> bool:
    """Return whether calls are written as since version 13: before, they had an id or were a list."""
    return "[TOOL_CALLS]" in template and "[ARGS]" in template and "[CALL_ID]" not in template


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
