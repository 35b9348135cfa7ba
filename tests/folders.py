"""Tiny Hugging Face folders for tests: a trained byte-level vocabulary, random Qwen2 weights, JSON around.

Also turns a GGUF file's vocabulary into a tokenizer.json, so that both ways to read it can be compared.
"""

import json
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"
)
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WORDS = ("<tool_call>", "</tool_call>")
CODE = [
    "def reverse(text: str) -> str:\n    return text[::-1]\n",
    "for each in names: print(each, 'übrig')\n",
]
VOCAB = 384  # rows of the weights; the vocabulary has fewer, as real ones do
CONFIG = {
    "model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 512, "intermediate_size": 512,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048, "vocab_size": VOCAB,
    "rope_theta": 1e6, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
    "use_sliding_window": False, "eos_token_id": 0,
}  # fmt: skip
# How Qwen2 cuts text before it merges bytes.
QWEN_CUTS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
SPLIT = {"type": "Split", "pattern": {"Regex": QWEN_CUTS}, "behavior": "Isolated", "invert": False}


def write_vocabulary(folder: Path) -> None:
    """A vocabulary of 256 bytes, a few merges, ChatML's control tokens and two words."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()  # type: ignore[assignment]
    cuts = pre_tokenizers.Split(Regex(QWEN_CUTS), "isolated")
    into_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cuts, into_bytes])  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CODE, trainer)
    tokenizer.add_special_tokens([*CONTROLS])
    tokenizer.add_tokens([AddedToken(word, rstrip=True) for word in WORDS])
    tokenizer.enable_truncation(16)
    tokenizer.save(str(folder / "tokenizer.json"))
    told = {"chat_template": TEMPLATE, "eos_token": {"content": "<|im_end|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))


def write_weights(folder: Path, seed: int, shards: int = 1) -> dict[str, Any]:
    """Random weights of CONFIG's shape, in so many files; gives them back by their names in the model."""
    from safetensors.torch import save_file

    from vivace.engine.runners.cuda.model.shape import Shape
    from vivace.engine.runners.cuda.weights.build import random_weights

    shape = Shape(2, 512, 512, 4, 2, VOCAB, 2048)
    weights = random_weights(shape, seed)
    weights["lm_head.weight"] = random_weights(shape, seed + 1)["embed_tokens.weight"] * 0.4
    names = list(weights)
    where: dict[str, str] = {}
    for shard in range(shards):
        file = "model.safetensors" if shards == 1 else f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {_stored(name): weights[name] for name in names[shard::shards]}
        save_file(part, str(folder / file))
        where |= dict.fromkeys(part, file)
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return weights


def write_config(folder: Path, **changes: Any) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))


def write_model(folder: Path, seed: int = 5, shards: int = 1) -> Path:
    """A whole model."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder)
    write_vocabulary(folder)
    write_weights(folder, seed, shards)
    return folder


def write_gguf_vocabulary(source: Path, folder: Path, cuts: list[dict[str, Any]]) -> None:
    """What is in a GGUF file's header of a byte-level vocabulary, as tokenizer.json has it."""
    from vivace.engine.runners.cuda.weights.gguf_file import GgufFile

    fields = GgufFile(source).fields
    entries = list(zip(fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"], strict=True))
    control, user_defined = 3, 4
    told = {
        "version": "1.0",
        "added_tokens": [
            {"id": token, "content": text, "special": kind == control, "normalized": False}
            | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
            for token, (text, kind) in enumerate(entries)
            if kind in (control, user_defined)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts},
        "decoder": BYTES,
        "model": {
            "type": "BPE",
            "vocab": {text: token for token, (text, kind) in enumerate(entries) if kind == 1},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(told))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": fields["tokenizer.chat_template"]})
    )
    end = fields["tokenizer.ggml.eos_token_id"]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end]}))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2"}))


def _stored(name: str) -> str:
    return name if name == "lm_head.weight" else f"model.{name}"
