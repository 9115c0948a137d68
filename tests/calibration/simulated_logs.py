"""Logs of frameworks, in their own formats and names, written from the tables of a simulated run."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlsim.build import Plan, plan
from rlsim.results.tables import tables
from rlsim.scenario.schema import Scenario
from rlsim.sim.run import Run, simulate

Row = dict[str, float]

SCALE, OFFSET = 1.35, 1.5e-3
MFU, LOGPROB_MFU, PER_UPDATE, FIXED, SYNC = 0.37, 0.29, 0.12, 0.8, 1.7
MEAN, SIGMA, CAP, PROMPT = 300.0, 0.7, 2048, 96
STEPS = 40
"""What the simulated run has, and a fit must find."""

COEFFICIENTS = {
    "source": "coefficients",
    "base_seconds": 4e-3,
    "per_sequence_seconds": 2e-4,
    "per_kv_token_seconds": 1e-7,
    "per_prefill_token_seconds": 2e-5,
}
BASE: dict[str, Any] = {
    "name": "a run",
    "model": "Qwen2.5-1.5B",
    "cluster": {"device": "A100-SXM-80GB", "gpus": 4},
    "rollout": {"gpus": 2, "max_num_seqs": 64, "step_time": COEFFICIENTS},
    "trainer": {"gpus": 2, "mfu": 0.5, "updates_per_step": 2, "reference": True},
    "workload": {
        "prompts_per_step": 8,
        "group_size": 4,
        "prompt_tokens": PROMPT,
        "response_tokens": {"law": "lognormal", "mean_tokens": 500, "sigma": 1.0, "cap_tokens": CAP},
    },
    "policy": {"preset": "sync-disaggregated"},
    "run": {"steps": STEPS, "warmup_steps": 1, "replications": 2},
}
"""What the user knows of the run: sizes and policy; costs and lengths are guesses."""

TRUTH: dict[str, dict[str, Any]] = {
    "rollout": {"step_time": {**COEFFICIENTS, "scale": SCALE, "offset_seconds": OFFSET, "noise_cv": 0.05}},
    "trainer": {
        "mfu": MFU,
        "logprob_mfu": LOGPROB_MFU,
        "seconds_per_update": PER_UPDATE,
        "fixed_seconds_per_step": FIXED,
    },
    "workload": {"response_tokens": {"law": "lognormal", "mean_tokens": MEAN, "sigma": SIGMA, "cap_tokens": CAP}},
    "sync": {"base_seconds": SYNC, "link_bytes_per_second": 1e15},
}


def base_scenario(policy: Mapping[str, Any] | None = None) -> Scenario:
    return Scenario.model_validate({**BASE, **({"policy": dict(policy)} if policy else {})})


@cache
def true_run(preset: str = "sync-disaggregated", parameters: tuple[tuple[str, Any], ...] = (), lengths: str = "") -> Run:
    """The run that was "real"."""
    tree = {**BASE, "policy": {"preset": preset, **dict(parameters)}}
    for section, values in TRUTH.items():
        tree[section] = {**tree.get(section, {}), **values}
    if lengths:
        tree["workload"] = {**tree["workload"], "response_tokens": int(lengths)}
    return simulate(plan(Scenario.model_validate(tree)))


def plan_of(run: Run) -> Plan:
    return replace(run.plan)


def steps_of(run: Run) -> pd.DataFrame:
    """One row a step: what every framework measures, under our names."""
    made = tables(run)
    samples, updates = made["samples"], made["updates"]
    rows = []
    for step in updates.itertuples():
        own = samples[samples.trained_step == step.step]
        tokens = own.response_tokens.to_numpy()
        rows.append(
            {
                "number": int(step.step) + 1,
                "step": step.step_seconds,
                "generation": own.finished_seconds.max() - own.submitted_seconds.min(),
                "wait": step.wait_seconds,
                "old_log_prob": step.old_log_prob_seconds,
                "reference": step.reference_seconds,
                "update_actor": step.update_actor_seconds,
                "sync": step.sync_seconds,
                "mean": tokens.mean(),
                "max": tokens.max(),
                "min": tokens.min(),
                "std": tokens.std(),
                "clipped": (own.finish_reason == "length").mean(),
                "prompt": own.prompt_tokens.mean(),
                "tokens": float(step.tokens),
                "samples": float(step.samples),
            }
        )
    return pd.DataFrame(rows)


Named = Mapping[str, str]

VERL: Named = {
    "step": "timing_s/step",
    "generation": "timing_s/gen",
    "old_log_prob": "timing_s/old_log_prob",
    "reference": "timing_s/ref",
    "update_actor": "timing_s/update_actor",
    "sync": "timing_s/update_weights",
    "mean": "response_length/mean",
    "max": "response_length/max",
    "min": "response_length/min",
    "clipped": "response_length/clip_ratio",
    "prompt": "prompt_length/mean",
    "tokens": "perf/total_num_tokens",
}


def named(table: pd.DataFrame, names: Named) -> list[tuple[int, Row]]:
    """Rows under a framework's names."""
    return [
        (int(row["number"]), {name: float(row[ours]) for ours, name in names.items()}) for row in table.to_dict("records")
    ]


def write_verl_jsonl(folder: Path, table: pd.DataFrame, names: Named = VERL) -> Path:
    file = folder / "metrics.jsonl"
    lines = [json.dumps({"step": step, "data": row}) for step, row in named(table, names)]
    file.write_text("\n".join(lines) + "\n")
    return file
