"""Weights of a running vLLM engine from a safetensors file in shared memory, through vLLM's weight-transfer API.

Importing the module registers the backend: every worker does (:mod:`rlsim.live.vllm.worker`), and so does the process
that configures the engine. It imports vllm and torch; nothing else of ours imports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

BACKEND = "rlsim-file"
"""Name of the backend in vLLM's ``WeightTransferConfig``."""


@dataclass
class NoInit(WeightTransferInitInfo):  # type: ignore[misc]
    """A file needs no connection."""


@dataclass
class FromFile(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Where the weights are."""

    path: str = ""
    """Safetensors under Hugging Face names, on this host."""


class FileWeights(WeightTransferEngine[NoInit, FromFile]):  # type: ignore[misc]
    """Each worker maps the file and takes its own share of every tensor."""

    init_info_cls, update_info_cls = NoInit, FromFile

    def init_transfer_engine(self, init_info: NoInit) -> None:
        """Nothing to connect."""

    def start_weight_update(self) -> None:
        """Bring the model back to the layout that checkpoints have."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: Any) -> None:
        """Take one file; vLLM's own version waits for an accelerator, which a CPU has not."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: FromFile) -> None:
        """Load what the file holds."""
        with safe_open(update_info.path, framework="pt", device="cpu") as file:
            self.model.load_weights((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118

    def finish_weight_update(self) -> None:
        """Bring the model into the layout that kernels need."""
        finalize_layerwise_reload(self.model, self.model_config)
        pack_tied_head(self.model)

    def shutdown(self) -> None:
        """Nothing is held."""


def pack_tied_head(model: Any) -> None:
    """On a CPU linear weights are packed for the kernel when a checkpoint is loaded.

    A tied head has no tensor in the checkpoint, so its packed copy would stay that of the old embedding (log-probs off
    by 0.6): pack it again from the new one.
    """
    head = getattr(model, "lm_head", None)
    embedding = getattr(getattr(model, "model", None), "embed_tokens", None)
    is_tied = getattr(model.config, "tie_word_embeddings", False)
    if head is None or embedding is None or not is_tied or not hasattr(head, "cpu_linear"):
        return
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    head.weight = embedding.weight
    dispatch_cpu_unquantized_gemm(head, remove_weight=False)


if BACKEND not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(BACKEND, FileWeights)
