"""Models for a calibration: a folder with a ``config.json``, or a small built-in shape with random weights."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError
from rlsim.costs import hfconfig

BUILT_IN: dict[str, dict[str, Any]] = {
    "small6x512": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 6,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "intermediate_size": 1408,
        "vocab_size": 4096,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    }
}
"""Shapes for a machine without a GPU; nothing is downloaded."""


def model_folder(model: str, work: Path) -> Path:
    """The folder of ``model``; a built-in one is written into ``work``.

    Raises ``ParameterError`` where there is neither a ``config.json`` nor a built-in shape of that name.
    """
    if model in BUILT_IN:
        folder = work / model
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(BUILT_IN[model], indent=1), encoding="utf-8")
        return folder
    folder = Path(model)
    if not (folder / "config.json").is_file():
        raise ParameterError("--model", model, f"a folder with a config.json, or one of {', '.join(BUILT_IN)}")
    return folder.resolve()


def fingerprint(folder: Path) -> str:
    """Hash of the configuration, so that samples of two models never mix."""
    return hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()[:16]


def longest_tokens(folder: Path) -> int:
    """Positions that the model has."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = config.get("text_config", config)
    return int(config.get("max_position_embeddings", 2304))


def weight_bytes(folder: Path) -> float | None:
    """Bytes of all parameters in bf16; None for a layout that is not known."""
    try:
        return 2.0 * hfconfig.read(folder).parameters()
    except ParameterError:
        return None


def has_weights(folder: Path) -> bool:
    """Whether there is a checkpoint to load."""
    return any(folder.glob("*.safetensors"))


def write_random_weights(folder: Path) -> None:
    """A checkpoint of the built-in shape in ``folder``."""
    from transformers import AutoConfig, AutoModelForCausalLM

    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
