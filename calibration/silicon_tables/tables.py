"""Profiles from the measured-kernel tables of aiconfigurator-core (Apache-2.0).

The tables compose a step from timed kernels of one GPU type and engine version. They price uniform batches
(all contexts of a step equal), so a law fitted to them does too.

Making the shipped profiles again: every case of a list, skipping those that are made already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from calibration.fitting.step_model import Knots, fit_step_law, step_fit
from calibration.silicon_tables.cases import TableCase
from calibration.silicon_tables.grid import BATCHES, CHUNKS, StepTables, fitted_of, grid
from rlsim.core.errors import ParameterError
from rlsim.costs.evidence import Provenance
from rlsim.costs.profile import Profile, load_profile

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


KNOTS = Knots(
    tokens=tuple(sorted({*fitted_of(BATCHES), *fitted_of(CHUNKS)})),
    decodes=fitted_of(BATCHES),
)
"""The law bends wherever the fit sees a step: kernels bend at their tiles, which powers of two would miss."""


def silicon_profile(case: TableCase, date: str = "") -> Profile:
    """Fit a profile to the grid of table steps without its thirds, and test it on those.

    Raises ``ParameterError`` without the ``tables`` extra and for a case that the tables do not cover.
    """
    with case.model_id() as model_id:
        tables = open_tables(case, model_id)
        kv_tokens, weight_bytes = _memory(case, model_id)
    points = list(grid(tables, kv_tokens))
    fitted = [point.sample for point in points if not point.held_out]
    held_out = [point.sample for point in points if point.held_out]
    law = fit_step_law(fitted, _provenance(case, date), KNOTS)
    return Profile(
        name=case.name,
        model=case.model_name,
        device=case.device,
        tensor_parallel=case.tensor_parallel,
        expert_parallel=case.expert_parallel,
        engine=case.backend,
        engine_version=case.backend_version,
        step=step_fit(law, fitted, held_out, **_known(case, tables)),
        kv_capacity_tokens=kv_tokens,
        weight_bytes=weight_bytes,
        notes=NOTES,
    )


def open_tables(case: TableCase, model_id: str) -> StepTables:
    """The tables' engine for one configuration of the model that they know as ``model_id``."""
    try:
        from aiconfigurator_core.sdk.engine import EngineHandle
    except ImportError as error:
        raise ParameterError("tables", "aiconfigurator-core is not installed", "pip install 'rlsim[tables]'") from error
    try:
        handle: StepTables = EngineHandle.compile(
            model_id, case.system, case.backend, backend_version=case.backend_version, **case.sharding
        )
    except Exception as error:
        raise _not_covered(case, error) from error
    return handle


def _memory(case: TableCase, model_id: str) -> tuple[int, float]:
    """KV tokens of a replica at 0.9 of the memory, and bytes of its weights."""
    from aiconfigurator_core.sdk.memory import estimate_kv_cache

    try:
        estimate = estimate_kv_cache(
            model_id,
            case.system,
            case.backend,
            case.backend_version,
            max_num_tokens=8192,
            max_batch_size=512,
            memory_fraction_kind="of_total",
            memory_fraction_value=0.9,
            **case.sharding,
        )
    except Exception as error:
        raise _not_covered(case, error) from error
    breakdown = estimate["memory_breakdown"]
    return int(estimate["total_kv_size_tokens"]), float(breakdown["weights_bytes"]) * case.tensor_parallel


def _not_covered(case: TableCase, error: Exception) -> ParameterError:
    """The tables raise whatever they meet: a missing version, a missing shape, no memory left."""
    return ParameterError("tables", f"{case.name}: {error}", "a configuration that the tables cover")


def _provenance(case: TableCase, date: str) -> Provenance:
    source = SOURCE.format(
        version=_package_version(),
        system=case.system,
        backend=case.backend,
        backend_version=case.backend_version,
    )
    return Provenance("silicon-table", source, date, LICENCE)


def _known(case: TableCase, tables: StepTables) -> dict[str, Any]:
    operations = tables.decode_step_per_op(64, 2046, 2)
    silicon = sum(milliseconds for _, milliseconds, _, label in operations if label == "silicon")
    share = silicon / sum(milliseconds for _, milliseconds, _, _ in operations)
    measured = f"{share:.0%} of a step of 64 decodes at 2048 tokens is of measured kernels"
    return {
        "method": METHOD | {"decode": f"{METHOD['decode']}; {measured}, the rest the tables estimate"},
        "command": case.command,
        "hardware": {"gpu": case.device, "gpus": str(case.tensor_parallel)},
        "libraries": libraries(case),
    }


def libraries(case: TableCase) -> dict[str, str]:
    """Versions that the figures come from."""
    return {"aiconfigurator-core": _package_version(), case.backend: case.backend_version}


def _package_version() -> str:
    from importlib.metadata import version

    return version("aiconfigurator-core")


CASES = "cases.csv"
"""The list, in the folder of the profiles."""


def build_catalog(
    cases: Iterable[TableCase], folder: Path, date: str, again: bool = False, done: Callable[[str], None] = print
) -> list[Path]:
    """Write a profile a case into ``folder`` and say ``done`` of each; gives the files written.

    A case whose profile lies there, from the same command and versions, is skipped unless ``again``, so that an
    interrupted build goes on where it stopped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for case in cases:
        file = folder / f"{case.name}.json"
        if again or not is_made(case, file):
            silicon_profile(case, date).write(file)
            written.append(file)
        done(case.name)
    return written


def is_made(case: TableCase, file: Path) -> bool:
    """Whether ``file`` is the profile of the case, from the tables that are installed."""
    try:
        profile = load_profile(file)
    except ParameterError:
        return False
    step = profile.step
    return step is not None and (step.evidence.command, step.evidence.libraries) == (case.command, libraries(case))
