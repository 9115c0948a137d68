"""Engines and trainers of a live run as specs: values that any process can build them from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rlsim.live.protocols import Now
from rlsim.live.site import Needs
from rlsim.live.torch.recipe import Recipe
from rlsim.live.torch.trainer import TorchTrainer
from rlsim.live.vllm.engine import VllmEngine
from rlsim.live.vllm.setup import EngineSetup


@dataclass(frozen=True, slots=True)
class VllmSpec:
    """A vLLM engine."""

    replica: int
    setup: EngineSetup

    @property
    def model(self) -> Path:
        return self.setup.model

    @property
    def needs(self) -> Needs:
        """A GPU a rank, or a core a rank."""
        ranks = self.setup.tensor_parallel
        return Needs(1, ranks) if self.setup.device == "cuda" else Needs(ranks)

    def build(self, model: Path, now: Now, work: Path) -> VllmEngine:
        return VllmEngine(self.replica, replace(self.setup, model=model), now, work)


@dataclass(frozen=True, slots=True)
class TorchSpec:
    """A trainer in torch; it publishes below the folder of the run."""

    recipe: Recipe

    @property
    def model(self) -> Path:
        return self.recipe.model

    @property
    def needs(self) -> Needs:
        """A GPU and a core a rank, or the cores of its threads."""
        ranks = self.recipe.processes
        return Needs(ranks, ranks) if self.recipe.device == "cuda" else Needs(ranks * self.recipe.threads)

    def build(self, model: Path, work: Path) -> TorchTrainer:
        return TorchTrainer(replace(self.recipe, model=model, weights_folder=work / "weights"))
