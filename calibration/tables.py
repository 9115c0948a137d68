"""Profiles from the measured-kernel tables of aiconfigurator-core (Apache-2.0).

The tables compose a step from timed kernels of one GPU type and engine version. They price uniform batches
(all contexts of a step equal), so a law fitted to them does too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.step_evidence import step_fit
from calibration.stepfit import fit_step_law
from calibration.table_grid import StepTables, grid
from rlsim.core.errors import ParameterError
from rlsim.costs.profile import Profile
from rlsim.costs.provenance import Provenance

DEVICES = {
    "h100_sxm": "H100-SXM",
    "h200_sxm": "H200-SXM",
    "a100_sxm": "A100-SXM-80GB",
    "b200_sxm": "B200",
    "l40s": "L40S",
}
"""Names of the tables' systems in our device catalogue."""

NOTES = (
    "The tables are interpolations of kernels timed alone: 5 to 10 % from end-to-end measurements of dense models with "
    "vLLM on H100 and H200, 20 to 30 % elsewhere. The errors here are of the law against the tables. "
    "The tables price uniform batches: mixed context lengths cost 2-3 % more in the median."
)
SOURCE = "aiconfigurator-core {version} tables of {system}, {backend} {backend_version}"
LICENCE = "Apache-2.0; data copyright NVIDIA CORPORATION & AFFILIATES; the coefficients are our fit"
METHOD = {
    "decode": "all contexts equal, one new token a sequence; composed from timed kernels",
    "prefill": "one chunk of one prompt after cached tokens; composed from timed kernels",
    "mixed": "whole prompts beside decodes whose contexts equal a prompt; composed from timed kernels",
}


@dataclass(frozen=True, slots=True)
class TableCase:
    """One configuration of the tables."""

    model_id: str
    """A name that the tables bundle (``Qwen/Qwen3-8B``), or a folder with a ``config.json``."""
    system: str
    """Name of the GPU in the tables (``h100_sxm``)."""
    tensor_parallel: int = 1
    expert_parallel: int = 1
    backend: str = "vllm"
    backend_version: str = "0.24.0"

    @property
    def model(self) -> str:
        """The model's name in our catalogue."""
        return self.model_id.rstrip("/").rsplit("/", 1)[-1].removeprefix("Meta-")

    @property
    def device(self) -> str:
        """The GPU's name in our catalogue."""
        return DEVICES.get(self.system, self.system)

    @property
    def name(self) -> str:
        """``qwen3-32b_h100-sxm_tp2``, with ``_ep8`` behind it where experts are spread."""
        experts = f"_ep{self.expert_parallel}" if self.expert_parallel > 1 else ""
        return f"{self.model}_{self.device}_tp{self.tensor_parallel}{experts}".lower()

    @property
    def command(self) -> str:
        """What makes the profile again."""
        experts = f" --ep {self.expert_parallel}" if self.expert_parallel > 1 else ""
        version = f" --backend {self.backend} --backend-version {self.backend_version}"
        return (
            f"rlsim calibrate tables --model {self.model_id} --device {self.device} --tp {self.tensor_parallel}"
            f"{experts}{version}"
        )

    @property
    def sharding(self) -> dict[str, int]:
        """Keywords of the tables: experts are spread over groups, and each is cut over the GPUs of its group."""
        width = self.tensor_parallel // self.expert_parallel
        return {"tp_size": self.tensor_parallel, "moe_tp_size": width, "moe_ep_size": self.expert_parallel}


def silicon_profile(case: TableCase, date: str = "") -> Profile:
    """Fit a profile to two thirds of a grid of table steps and test it on the rest.

    Raises ``ParameterError`` without the ``tables`` extra and for a case that the tables do not cover.
    """
    tables = open_tables(case)
    kv_tokens, weight_bytes = _memory(case)
    points = list(grid(tables, kv_tokens))
    fitted = [point.sample for point in points if not point.held_out]
    held_out = [point.sample for point in points if point.held_out]
    law = fit_step_law(fitted, _provenance(case, date))
    return Profile(
        name=case.name,
        model=case.model,
        device=case.device,
        tensor_parallel=case.tensor_parallel,
        expert_parallel=case.expert_parallel,
        engine=case.backend,
        engine_version=case.backend_version,
        step=step_fit(law, fitted, held_out, **_known(case)),
        kv_capacity_tokens=kv_tokens,
        weight_bytes=weight_bytes,
        notes=NOTES,
    )


def open_tables(case: TableCase) -> StepTables:
    """The tables' engine for one configuration."""
    try:
        from aiconfigurator_core.sdk.engine import EngineHandle
    except ImportError as error:
        raise ParameterError("tables", "aiconfigurator-core is not installed", "pip install 'rlsim[tables]'") from error
    handle: StepTables = EngineHandle.compile(
        case.model_id, case.system, case.backend, backend_version=case.backend_version, **case.sharding
    )
    return handle


def write_profile(profile: Profile, folder: Path) -> Path:
    """Write a profile under its name into a folder of profiles."""
    file = folder / f"{profile.name}.json"
    profile.write(file)
    return file


def _memory(case: TableCase) -> tuple[int, float]:
    """KV tokens of a replica at 0.9 of the memory, and bytes of its weights."""
    from aiconfigurator_core.sdk.memory import estimate_kv_cache

    estimate = estimate_kv_cache(
        case.model_id,
        case.system,
        case.backend,
        case.backend_version,
        max_num_tokens=8192,
        max_batch_size=512,
        memory_fraction_kind="of_total",
        memory_fraction_value=0.9,
        **case.sharding,
    )
    breakdown = estimate["memory_breakdown"]
    return int(estimate["total_kv_size_tokens"]), float(breakdown["weights_bytes"]) * case.tensor_parallel


def _provenance(case: TableCase, date: str) -> Provenance:
    source = SOURCE.format(
        version=_package_version(),
        system=case.system,
        backend=case.backend,
        backend_version=case.backend_version,
    )
    return Provenance("silicon-table", source, date, LICENCE)


def _known(case: TableCase) -> dict[str, Any]:
    return {
        "method": METHOD,
        "command": case.command,
        "hardware": {"gpu": case.device, "gpus": str(case.tensor_parallel)},
        "libraries": {"aiconfigurator-core": _package_version(), case.backend: case.backend_version},
    }


def _package_version() -> str:
    from importlib.metadata import version

    return version("aiconfigurator-core")
