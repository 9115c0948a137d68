"""Logs of frameworks, in their own formats and names, written from the tables of a simulated run."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlsim.executor.run import FinishedRun
from rlsim.resolve import resolve
from rlsim.results.tables import tables
from rlsim.scenario.override import override
from rlsim.scenario.schema import Scenario
from rlsim.sim.simulation import simulate

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
    "trainer": {"gpus": 2, "mfu": 0.5, "updates_per_step": 2, "reference": True, "balance": "lpt"},
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


Settings = tuple[tuple[str, Any], ...]


def base_scenario(settings: Settings = ()) -> Scenario:
    """What the user writes down; ``settings`` are what is known besides."""
    return override(Scenario.model_validate(BASE), dict(settings))


def true_scenario(settings: Settings = ()) -> Scenario:
    """The base with the truth, and with ``settings`` on top."""
    tree = dict(BASE)
    for section, values in TRUTH.items():
        tree[section] = {**tree.get(section, {}), **values}
    return override(Scenario.model_validate(tree), dict(settings))


def role_change_seconds() -> float:
    """Of both changes in a step on shared GPUs, which no log holds apart."""
    cost = resolve(true_scenario((("policy.preset", "nemo-rl-sync"),))).switching
    return cost.to_training_seconds() + cost.to_rollout_seconds()


@cache
def true_run(settings: Settings = (), replication: int = 0) -> FinishedRun:
    """The run that was "real"."""
    return simulate(resolve(true_scenario(settings)), replication)


def steps_of(run: FinishedRun) -> pd.DataFrame:
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
                "passes": step.old_log_prob_seconds + step.reference_seconds,
                "total": own.prompt_tokens.mean() + tokens.mean(),
                "total_max": own.prompt_tokens.mean() + tokens.max(),
                "span": own.start_lag.mean(),
                "sample_wait": step.wait_seconds / len(own),
            }
        )
    table = pd.DataFrame(rows)
    return table.assign(cumulative=table.tokens.cumsum())


TIMERS = ("generation", "old_log_prob", "reference", "update_actor", "sync")
NOISE, PERSISTENCE = 0.03, 0.6
"""Spread of what timers are off by, and how much of it the next step still has."""
RELOAD_SECONDS = 90.0
DRIFT: Settings = (("workload.drift", {"growth_per_version": 0.004, "max_factor": 1.5}),)


def mean_growth(steps: range) -> float:
    """Mean factor of ``DRIFT`` on the lengths of synchronous steps, counted from 0."""
    growth = dict(DRIFT)["workload.drift"]["growth_per_version"]
    return float(np.mean([(1 + growth) ** step for step in steps]))


def disturbed(table: pd.DataFrame, seed: int, synchronous: bool = True) -> pd.DataFrame:
    """The log of the same run with noise that lasts, and a restart.

    Timers are off by lasting noise. A restart makes a step long, outside of its timers and in generation, and the two
    steps before it are logged twice, first with other values.
    """
    rng = np.random.default_rng(seed)
    table, restart = table.copy(), int(rng.integers(8, len(table) - 2))
    for name in TIMERS:
        errors = rng.standard_normal(len(table))
        for step in range(1, len(table)):
            errors[step] = PERSISTENCE * errors[step - 1] + np.sqrt(1 - PERSISTENCE**2) * errors[step]
        more = table[name] * (np.exp(NOISE * errors) - 1)
        more.iloc[restart] += RELOAD_SECONDS * (name == "generation")
        table[name] += more
        table["step"] += more * (synchronous or name != "generation")
    table["passes"] = table.old_log_prob + table.reference
    table.loc[restart, "step"] += RELOAD_SECONDS
    before = table.iloc[restart - 2 : restart]
    before = before.assign(step=1.3 * before.step, generation=1.5 * before.generation)
    return pd.concat([table.iloc[: restart - 2], before, table.iloc[restart - 2 :]], ignore_index=True)


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
        (int(row["number"]), {name: float(row[ours]) for ours, name in names.items() if name})
        for row in table.to_dict("records")
    ]


def write_verl_jsonl(folder: Path, table: pd.DataFrame, names: Named = VERL) -> Path:
    file = folder / "metrics.jsonl"
    lines = [json.dumps({"step": step, "data": row}) for step, row in named(table, names)]
    file.write_text("\n".join(lines) + "\n")
    return file


SLIME: Named = {
    "step": "perf/step_time",
    "generation": "perf/rollout_time",
    "wait": "perf/train_wait_time",
    "old_log_prob": "perf/log_probs_time",
    "reference": "perf/ref_log_probs_time",
    "update_actor": "perf/actor_train_time",
    "sync": "perf/update_weights_time",
    "mean": "rollout/response_len/mean",
    "max": "rollout/response_len/max",
    "min": "rollout/response_len/min",
    "clipped": "rollout/truncated_ratio",
    "total": "rollout/total_lengths",
}
SKYRL: Named = {
    "step": "timing/step",
    "generation": "timing/generate",
    "passes": "timing/fwd_logprobs_values_reward",
    "update_actor": "timing/train_critic_and_policy",
    "sync": "timing/sync_weights",
    "mean": "generate/avg_num_tokens",
    "max": "generate/max_num_tokens",
    "std": "generate/std_num_tokens",
}
NEMO_RL: Named = {
    "step": "timing/train/total_step_time",
    "generation": "timing/train/generation",
    "passes": "timing/train/policy_and_reference_logprobs",
    "update_actor": "timing/train/policy_training",
    "sync": "timing/train/weight_sync",
    "mean": "train/mean_gen_tokens_per_sample",
    "max": "train/max_gen_tokens_per_sample",
    "prompt": "train/mean_prompt_length",
    "clipped": "train/truncation_rate",
}
VERL_ASYNC: Named = {**VERL, "generation": "", "wait": "timing_s/gen", "sync": "timing_s/param_sync"}
AREAL: Named = {
    "wait": "timeperf/rollout",
    "old_log_prob": "timeperf/recompute_logp",
    "reference": "timeperf/ref_logp",
    "update_actor": "timeperf/train_step",
    "sync": "timeperf/update_weights",
    "total": "ppo_actor/seq_len/avg",
    "total_max": "ppo_actor/seq_len/max",
    "prompt": "ppo_actor/prompt_len/avg",
    "span": "version_stats/sample_staleness_theta_avg",
}
OPENRLHF: Named = {
    "step": "timing/step_total",
    "generation": "timing/generation",
    "passes": "timing/make_experience",
    "update_actor": "timing/ppo_train",
    "sync": "timing/broadcast",
    "mean": "response_length",
    "total": "total_length",
}
TRL: Named = {
    "step": "step_time",
    "update_actor": "forward_time_s",
    "sync": "weight_sync_time_s",
    "sample_wait": "queue_wait_time_s",
    "mean": "completions/mean_length",
    "max": "completions/max_length",
    "clipped": "completions/clipped_ratio",
    "cumulative": "num_tokens",
}


def write_wandb_csv(folder: Path, table: pd.DataFrame, names: Named = SKYRL) -> Path:
    """The export of a chart: each metric under ``run - metric``, with its range."""
    file = folder / "wandb_export.csv"
    columns = [name for name in names.values() if name]
    header = ["Step", *(f"run-7{end}" for name in columns for end in (f" - {name}", f" - {name}__MIN"))]
    with file.open("w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(header)
        for step, row in named(table, names):
            writer.writerow([step, *(value for name in columns for value in (row[name], row[name]))])
    return file


def write_console_dicts(folder: Path, table: pd.DataFrame, names: Named = SLIME) -> Path:
    """Two dicts a step, as slime prints them, among other lines."""
    lines = ["(RolloutManager pid=12) Capturing CUDA graphs"]
    for step, row in named(table, names):
        for title, prefix in (("rollout", "rollout/"), ("perf", "perf/")):
            part = {name: np.float64(value) for name, value in row.items() if name.startswith(prefix)}
            lines.append(f"[2026-01-01 10:00:00] train_metric.py:12 - {title} {step}: {part}")
        lines.append(f"eval {step}: {{'perf/step_time': 1.0}}")
    file = folder / "slime.log"
    file.write_text("\n".join(lines) + "\n")
    return file


def write_trainer_state(folder: Path, table: pd.DataFrame, names: Named = TRL) -> Path:
    history = [{"loss": 0.01, "epoch": 0.1, "step": step, **row} for step, row in named(table, names)]
    file = folder / "trainer_state.json"
    file.write_text(json.dumps({"best_metric": None, "log_history": history, "global_step": len(table)}))
    return file


def write_prime_rl(folder: Path, table: pd.DataFrame, names: Named | None = None) -> Path:
    """Orchestrator and trainer into one console; both have a Time."""
    lines = []
    for row in table.to_dict("records"):
        rate, length = row["tokens"] / row["step"], row["tokens"] / row["samples"]
        head = f"\x1b[32m10:00:00\x1b[0m SUCCESS Step {row['number']} | Time: {row['step']:.2f}s"
        lines.append(
            f"{head} | Reward: 0.5000 | Throughput: {rate:.1f} tokens/s | Seq. Length: {length:.1f} tokens/sample"
            " | Async Level: 1 | Max. Off-Policy Level: 1"
        )
        time = 3 * row["step"] if row["number"] == 1 else row["step"] + 0.3
        lines.append(
            f"SUCCESS Step {row['number']} | Time: {time:.2f}s | Loss: 0.0100 | Entropy: 0.3 | Mismatch KL: 0.001"
            " | Grad. Norm: 0.1 | LR: 1.00e-06 | Throughput: 999 tokens/s | MFU: 4.0% | Peak Mem.: 50.0 GiB"
        )
    file = folder / "prime.log"
    file.write_text("\n".join(lines) + "\n")
    return file


def write_tensorboard(folder: Path, table: pd.DataFrame, names: Named = NEMO_RL) -> Path:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder = folder / "tb"
    writer = EventFileWriter(str(folder))
    for step, row in named(table, names):
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        writer.add_event(Event(step=step, wall_time=1.7e9 + step, summary=Summary(value=values)))
    writer.close()
    return folder
