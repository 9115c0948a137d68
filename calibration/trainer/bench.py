"""A trainer in torch that does what a framework's does, one timed piece at a time.

The model is the Hugging Face implementation with random weights: only its shape matters for time. Weights are bf16
with fp32 master weights and Adam moments, as mixed-precision trainers keep them. Packed samples attend within
themselves only, by one causal attention call a sample; padded ones are rows of equal length.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.measure.host import Stopwatch, require
from calibration.trainer.points import TrainerPoint
from rlsim.core.errors import ParameterError
from rlsim.costs import catalogue
from rlsim.costs.architecture import Architecture

BUILT_IN = {
    "small6x512": Architecture(
        "small6x512", layers=6, hidden=512, heads=8, kv_heads=4, head_dim=64, ffn=1408, vocab=4096, tied_embeddings=True
    ),
    "tiny2x128": Architecture(
        "tiny2x128", layers=2, hidden=128, heads=4, kv_heads=2, head_dim=32, ffn=256, vocab=512, tied_embeddings=True
    ),
}
"""Shapes for a machine without a GPU."""
LEARNING_RATE = 1e-5
ATTENTION = "rlsim_segments"
LONGEST = 131072
"""Positions of a model without a configuration of its own."""


@dataclass(frozen=True, slots=True)
class TrainerRecipe:
    """What every rank builds: the model, the device and the size of the group."""

    architecture: Architecture
    config_file: str | None
    """Folder of a Hugging Face ``config.json``; ``None``: a Llama of the architecture's shape."""
    device: str
    """``cuda`` or ``cpu``."""
    ranks: int = 1


class TrainerBench:
    """One data-parallel rank: the model, its optimizer and the work of a point."""

    def __init__(self, recipe: TrainerRecipe, rank: int = 0) -> None:
        self._torch = torch = require("torch", "calibrate")
        self.device = torch.device("cuda", rank) if recipe.device == "cuda" else torch.device("cpu")
        torch.manual_seed(0)
        self.config = _config(recipe)
        transformers = require("transformers", "calibrate")
        transformers.AttentionInterface.register(ATTENTION, _segmented_attention)
        with torch.device(self.device):
            model = transformers.AutoModelForCausalLM.from_config(self.config, dtype=torch.bfloat16)
        model.set_attn_implementation(ATTENTION)
        self.model = _sharded(torch, model.train(), recipe)
        self._parameters = list(self.model.parameters())
        self._masters = self._parameters
        if recipe.ranks == 1:
            self._masters = [torch.nn.Parameter(parameter.detach().float()) for parameter in self._parameters]
        self._optimizer = torch.optim.AdamW(self._masters, lr=LEARNING_RATE, fused=True)
        self._own_core = recipe.device == "cpu" and recipe.ranks == 1
        self._draw = torch.Generator().manual_seed(rank)

    @property
    def longest(self) -> int:
        """Tokens of the longest sample that the model has positions for."""
        return int(self.config.get_text_config().max_position_embeddings)

    def prepare(self) -> None:
        """Make gradients and the optimizer's moments, so that the first timed update is one of many."""
        self._pass((16,), "packed", train=True)
        self._update()

    def run(self, point: TrainerPoint) -> float:
        """Seconds of the point's work on this rank, the device's queue drained before and after.

        Alone on a CPU, less the time for which other processes held the core.
        """
        if point.work == "update":
            self._pass((16,), "packed", train=True)
        size = max(1, -(-len(point.lengths) // point.micro_batches))
        parts = [point.lengths[start : start + size] for start in range(0, len(point.lengths), size)]
        self._wait()
        watch = Stopwatch(self._own_core)
        self._work(point, parts)
        self._wait()
        seconds = watch.seconds()
        if point.work == "train":
            self._drop_gradients()
        return seconds

    def peak_bytes(self) -> int:
        """Memory high-water mark since the last call: of the GPU's allocator, or of the process.

        Of the process since its start where the kernel cannot reset the mark (other systems than Linux).
        """
        if self.device.type == "cuda":
            peak = int(self._torch.cuda.max_memory_allocated(self.device))
            self._torch.cuda.reset_peak_memory_stats(self.device)
            return peak
        status = Path("/proc/self/status")
        if not status.exists():
            import resource

            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        return int(line.split()[1]) * 1024

    def _work(self, point: TrainerPoint, parts: list[tuple[int, ...]]) -> None:
        if point.work in ("logprob", "step"):
            for part in parts:
                self._pass(part, point.packing, train=False)
        if point.work in ("train", "step"):
            for part in parts:
                self._pass(part, point.packing, train=True)
        if point.work in ("update", "step"):
            self._update()

    def _pass(self, lengths: tuple[int, ...], packing: str, train: bool) -> None:
        """Log-probabilities of one micro-batch; with ``train``, the policy gradient as well."""
        torch = self._torch
        padded = packing == "padded"
        if padded:
            shape = (len(lengths), max(lengths))
            positions = torch.arange(shape[1]).expand(shape)
        else:
            shape = (1, sum(lengths))
            positions = torch.cat([torch.arange(length) for length in lengths])[None]
        ids = torch.randint(0, self.config.vocab_size, shape, generator=self._draw).to(self.device)
        inputs = {"input_ids": ids, "position_ids": positions.to(self.device)}
        with torch.set_grad_enabled(train):
            logits = self.model(**inputs, use_cache=False, rlsim_segments=None if padded else lengths).logits
            nll = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
            if train:
                nll.backward()
        nll.item()

    def _update(self) -> None:
        """Clip the gradients, step the optimizer on the master weights, and copy them to the model's."""
        torch = self._torch
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        if self._masters is not self._parameters:
            for master, parameter in zip(self._masters, self._parameters, strict=True):
                master.grad = parameter.grad.float()
        self._optimizer.step()
        if self._masters is not self._parameters:
            with torch.no_grad():
                torch._foreach_copy_(self._parameters, self._masters)
        self._drop_gradients()

    def _drop_gradients(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        for parameter in self._parameters:
            parameter.grad = None

    def _wait(self) -> None:
        if self.device.type == "cuda":
            self._torch.cuda.synchronize(self.device)
        if self._torch.distributed.is_initialized():
            self._torch.distributed.barrier()


def recipe_for(model: str, device: str, ranks: int = 1) -> TrainerRecipe:
    """The recipe of a built-in shape, of a ``config.json`` (or its folder), or of a dense catalogue model.

    Raises ``ParameterError`` at ``model`` for an unknown name or a faulty file, and for a catalogue model that is
    more than a dense Llama-like decoder.
    """
    if model in BUILT_IN:
        return TrainerRecipe(BUILT_IN[model], None, device, ranks)
    path = Path(model)
    if path.is_dir() or model.endswith(".json"):
        folder = path if path.is_dir() else path.parent
        return TrainerRecipe(Architecture.from_hf_config(folder, "model"), str(folder), device, ranks)
    architecture = catalogue.model(model)
    if architecture.experts or architecture.latent or architecture.linear:
        raise ParameterError("model", model, "a dense model, or the folder of its config.json")
    return TrainerRecipe(architecture, None, device, ranks)


def _config(recipe: TrainerRecipe) -> Any:
    transformers = require("transformers", "calibrate")
    if recipe.config_file is not None:
        return transformers.AutoConfig.from_pretrained(recipe.config_file, local_files_only=True)
    shape = recipe.architecture
    return transformers.LlamaConfig(
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.ffn,
        vocab_size=shape.vocab,
        max_position_embeddings=LONGEST,
        attention_bias=shape.qkv_bias,
        tie_word_embeddings=shape.tied_embeddings,
    )


def _sharded(torch: Any, model: Any, recipe: TrainerRecipe) -> Any:
    """FSDP2 over all ranks, a layer at a time: fp32 shards, bf16 compute, fp32 gradient reduction."""
    if recipe.ranks == 1:
        return model
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = model.float()
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=precision)
    return fully_shard(model, mp_policy=precision)


def _segmented_attention(
    module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float | None = None, **arguments: Any
) -> tuple[Any, None]:
    """Causal attention within each segment of a packed row, or within each row; shapes (rows, heads, tokens, width)."""
    import torch

    attend = torch.nn.functional.scaled_dot_product_attention
    grouped = query.shape[1] != key.shape[1]
    segments = arguments.get("rlsim_segments") or (query.shape[2],)
    parts = zip(*(tensor.split(segments, dim=2) for tensor in (query, key, value)), strict=True)
    mixed = [attend(*part, is_causal=True, scale=scaling, enable_gqa=grouped) for part in parts]
    return torch.cat(mixed, dim=2).transpose(1, 2).contiguous(), None
