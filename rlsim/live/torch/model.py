"""The model that is trained: float32 weights, computed in the precision of its configuration, sharded over ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from rlsim.live.extras import require_live
from rlsim.live.torch.batches import ATTENTION, TrainingSample, register
from rlsim.live.torch.recipe import Recipe


class Network:
    """One rank's share of the model."""

    def __init__(self, recipe: Recipe, rank: int = 0) -> None:
        self._torch = torch = require_live("torch")
        self.device = torch.device("cuda", rank) if recipe.device == "cuda" else torch.device("cpu")
        self.model = _loaded(recipe.model, self.device)
        self._dtype = self.model.config.dtype or torch.float32
        self._tied = bool(self.model.config.get_text_config().tie_word_embeddings)
        self.model.to(torch.float32)
        self._sharded = recipe.processes > 1
        if self._sharded:  # by FSDP, a layer at a time
            from torch.distributed.fsdp import fully_shard

            for layer in self.model.model.layers:
                fully_shard(layer)
            fully_shard(self.model)

    def log_probs(self, samples: Sequence[TrainingSample]) -> Any:
        """Log-probability of every target, sample after sample, as one flat float32 tensor.

        No sample takes a pass as well, of a token without target: ranks that are sharded compute together.
        """
        torch = self._torch
        rows = [sample.tokens for sample in samples] or [(0,)]
        starts = accumulate(map(len, rows), initial=0)
        before = [start + at - 1 for start, one in zip(starts, samples, strict=False) for at in one.targets]
        wanted = [one.tokens[at] for one in samples for at in one.targets]
        logits = self._logits(rows, before)
        chosen = logits.gather(1, torch.tensor(wanted, dtype=torch.long, device=self.device)[:, None])[:, 0]
        return chosen - logits.logsumexp(dim=1)

    def save(self, file: Path, rank: int = 0) -> None:
        """All weights under Hugging Face names, in the precision of the configuration, under another name until whole.

        Every rank takes part; the first one writes.
        """
        state = self._state()
        if rank == 0:
            partial = file.with_name(f".{file.name}.part")
            require_live("safetensors.torch").save_file(state, partial, metadata={"format": "pt"})
            os.replace(partial, file)

    def wait(self) -> None:
        """Wait until the device has done its work."""
        if self.device.type == "cuda":
            self._torch.cuda.synchronize(self.device)

    def _logits(self, rows: Sequence[Sequence[int]], targets: Sequence[int]) -> Any:
        """Logits at positions of the packed row, shape (positions, vocabulary)."""
        torch = self._torch
        ids = torch.tensor([token for row in rows for token in row], device=self.device)
        positions = torch.cat([torch.arange(len(row), device=self.device) for row in rows])
        keep = torch.tensor(targets, dtype=torch.long, device=self.device)
        low = self._dtype in (torch.bfloat16, torch.float16)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=low):
            out = self.model(
                input_ids=ids[None],
                position_ids=positions[None],
                use_cache=False,
                logits_to_keep=keep,
                rlsim_segments=tuple(map(len, rows)),
            )
        return out.logits[0].float()

    def _state(self) -> dict[str, Any]:
        if self._sharded:
            from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

            whole = get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        else:
            whole = self.model.state_dict()
        kept = {name: weight for name, weight in whole.items() if not (self._tied and name == "lm_head.weight")}
        return {name: weight.detach().to("cpu", self._dtype).contiguous() for name, weight in kept.items()}


def _loaded(folder: Path, device: Any) -> Any:
    transformers = require_live("transformers")
    register()
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).to(device)
    model.set_attn_implementation(ATTENTION)
    return model.train()
