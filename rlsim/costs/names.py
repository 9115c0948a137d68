"""Names that checkpoints have in configurations, and the catalogue model whose shape each has.

Endings that never change a shape (``-Instruct``, ``-FP8``, dates) are left off. A family's variants and fine-tunes have
the shape of their base: the tables below say which, and the caller says that it was assumed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SIZE = r"(\d+(?:\.\d+)?b)"
_ENDINGS = re.compile(
    r"-(?:instruct|base|chat|it|hf|pt|thinking|non-thinking|fp8|fp4|nvfp4|mxfp4|bf16|bfloat16|fp16|awq|gptq|w\d+a\d+"
    r"|int[48]|4bit|8bit|dynamic|block|torch-dist|torch|dist|mcore|megatron|dcp|2\d0[1-9]|2\d1[0-2]|0[1-9]\d\d|latest)"
)
"""Endings of the same weights' shape: tuning by the maker, data types, checkpoint formats, dates (year and month)."""
_FAMILIES: tuple[tuple[str, str], ...] = (
    (rf"deepseek-r1-distill-qwen-{_SIZE}", "Qwen2.5-{}"),
    (rf"deepseek-r1-distill-llama-{_SIZE}", "Llama-3.1-{}"),
    (rf"deepseek-r1-0528-qwen3-{_SIZE}", "Qwen3-{}"),
    (r"deepseek-(?:r1|v3)", "DeepSeek-V3"),
    (r"deepseek-(?:coder-)?v2-lite", "DeepSeek-V2-Lite"),
    (r"deepseek-(?:coder-)?v2", "DeepSeek-V2"),
    (r"deepseek-(?:llm|math)-7b", "DeepSeek-LLM-7B"),
    (r"deepseek-coder-6[.]7b|openvla", "Llama-2-7B"),
    (r"intellect-3(?:[.]\d)?", "GLM-4.5-Air"),
    (r"qwen3-vl-2b", "Qwen3-1.7B"),
    (r"seed-oss-36b", "Seed-OSS-36B"),
    (r"moonlight", "Moonlight-16B-A3B"),
    (r"kimi-k2(?:[.]\d)?", "Kimi-K2"),
    (rf"(?:qwen-?3|qwen)-?(?:vl|omni|coder|embedding|reranker)-{_SIZE[:-1]}(?:-a\d+b)?)", "Qwen3-{}"),
    (rf"qwen-?3[.]6-{_SIZE[:-1]}(?:-a\d+b)?)", "Qwen3.5-{}"),
    (rf"qwen-?2(?:\.5)?-(?:math-|coder-|vl-|omni-|1m-)?(?:rm-)?{_SIZE}", "Qwen2.5-{}"),
    (r"qwen2-vl-2b", "Qwen2.5-1.5B"),
    (r"qwq-32b", "Qwen2.5-32B"),
    (r"qvq-72b", "Qwen2.5-72B"),
    (
        rf"(?:skywork-or1|light-r1|deepscaler|deepcoder|acereason|openthinker|open-reasoner-zero|orz|eurus|still|oat-zero"
        rf"|simplerl|nemotron-research-reasoning-qwen|openreasoning-nemotron|openmath-nemotron|s1|r1-distill"
        rf"|dapo-qwen|simpletir|retool|mirage|limo|bespoke-stratos|open-?r1|openr1|sky-t1)(?:[\w.]*-)*?(?:qwen-)?{_SIZE}",
        "Qwen2.5-{}",
    ),
    (rf"qwen-(?:[a-z]+-)*{_SIZE}", "Qwen2.5-{}"),
    (rf"polaris-{_SIZE}", "Qwen3-{}"),
    (rf"llama-?3[.]3-{_SIZE}", "Llama-3.1-{}"),
    (rf"llama-?3(?:[.]\d)?-(?:[a-z][\w.]*-)*?(?:\d-)?{_SIZE}", "Llama-3.1-{}"),
    (rf"llama-?3(?:[.]\d)?-(?:[a-z][\w.]*-)*?(?:\d-)?{_SIZE}", "Llama-3.2-{}"),
    (r"(?:llama-3-)?nemotron-nano-8b|tulu-3-(?:[a-z]+-)*8b", "Llama-3.1-8B"),
    (rf"tulu-3-(?:[a-z]+-)*{_SIZE}", "Llama-3.1-{}"),
    (rf"llama-?2-{_SIZE}", "Llama-2-{}"),
    (r"llama-?4-scout", "Llama-4-Scout-17B-16E"),
    (r"llama-?4-maverick", "Llama-4-Maverick-17B-128E"),
    (r"glm-?(?:4-|z1-)(?:rumination-)?(?:\d+-)?9b", "GLM-4-9B"),
    (r"glm-?(?:4-|z1-)(?:rumination-)?(?:\d+-)?32b", "GLM-4-32B"),
    (r"glm-?4[.]7-(?:flash|30b)", "GLM-4.7-Flash"),
    (r"glm-?4[.]\d(?:v|-air|-106b)", "GLM-4.5-Air"),
    (r"glm-?4[.]\d", "GLM-4.5"),
    (r"glm-?5(?:[.]\d)?", "GLM-5"),
    (r"minimax-m2(?:[.]\d)?", "MiniMax-M2"),
    (r"mimo(?:-vl)?-7b", "MiMo-7B"),
    (r"gpt-oss-20b", "gpt-oss-20b"),
    (r"gpt-oss-120b", "gpt-oss-120b"),
    (r"nemotron-(?:3-)?nano-(?:omni-)?30b", "Nemotron-3-Nano-30B-A3B"),
    (r"nemotron-(?:3-)?super-(?:omni-)?120b", "Nemotron-3-Super-120B-A12B"),
    (r"nemotron-nano-9b-v2", "Nemotron-Nano-9B-v2"),
    (r"nemotron-nano-12b-v2", "Nemotron-Nano-12B-v2"),
    (r"nemotron-h-8b", "Nemotron-H-8B"),
    (rf"(?:medgemma|gemma)-3-{_SIZE}", "Gemma-3-{}"),
    (r"gemma-2-2b", "Gemma-2-2B"),
    (rf"olmo-?2-\d+-{_SIZE}", "OLMo-2-{}"),
    (rf"olmo-?3(?:[.]\d)?-(?:[a-z]+-)*(?:\d+-)?{_SIZE}", "Olmo-3-{}"),
    (r"(?:mistral-nemo|mn-12b)", "Mistral-Nemo-12B"),
    (r"(?:mistral-small|magistral-small|devstral-small|mistral-24b)", "Mistral-Small-24B"),
    (r"mistral-large", "Mistral-Large-123B"),
    (r"(?:mistral|zephyr|openhermes-2[.]5-mistral|starling-lm)-7b", "Mistral-7B"),
    (r"mixtral-8x7b", "Mixtral-8x7B"),
    (r"phi-4-mini", "Phi-4-mini"),
    (r"phi-4", "Phi-4"),
    (rf"smollm2-{_SIZE[:-2]}[mb])", "SmolLM2-{}"),
)
"""Patterns of families and of fine-tunes whose base is published, and the base; the first that names a model counts."""


def base_name(text: str, names: Iterable[str]) -> tuple[str, bool] | None:
    """The name of ``names`` that a checkpoint has the shape of, and whether that is assumed of a variant or fine-tune.

    ``text`` may be a path or have an organisation; case and ``_`` for ``-`` do not matter. None where nothing fits.
    """
    known = {_plain(name): name for name in names}
    last = _plain(text.rstrip("/").rpartition("/")[2].removesuffix(".git"))
    stripped = last
    while stripped not in known and (ending := re.search(rf"(?:{_ENDINGS.pattern})\Z", stripped)) is not None:
        stripped = stripped[: ending.start()]
    if stripped in known:
        return known[stripped], False
    without = re.sub(r"-{2,}", "-", _ENDINGS.sub("", last))
    for form in (last, without):
        for pattern, base in _FAMILIES:
            match = re.search(rf"(?<![a-z0-9.])(?:{pattern})(?![a-z0-9.])", form)
            base_of_family = None if match is None else known.get(_plain(base.format(*match.groups())))
            if base_of_family is not None:
                return base_of_family, True
    begun = [name for name in known if re.match(rf"{re.escape(name)}(?![\w.])", last)]
    return (known[max(begun, key=len)], True) if begun else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")
