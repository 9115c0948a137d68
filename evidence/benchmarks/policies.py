"""What each preset costs to simulate: CPU time an event, events a sample, and the controller's share.

    python evidence/benchmarks/policies.py [PRESET ...]

Every preset runs the same long-tailed workload, as many samples a step, on the same GPUs. A ratio is that to the
simplest preset, run just before each of its runs: the median of several pairs in one process.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from typing import Any

from rlsim.controller import Controller
from rlsim.core.errors import DeadlockError
from rlsim.core.events import Finished
from rlsim.core.log import RunLog
from rlsim.executor.run import make_controller, make_world
from rlsim.presets import load_preset, preset_names
from rlsim.resolve import ResolvedScenario, ResolveError, resolve
from rlsim.scenario.schema import Scenario
from rlsim.sim.collector import collector_paused
from rlsim.sim.simulation import Simulation

SIMPLEST = "sync-disaggregated"
PARAMETERS: dict[str, dict[str, Any]] = {
    "areal": {"max_head_offpolicyness": 2},
    "brorl": {"rollouts_per_prompt": 256},
    "copris": {"partial_rollout_pool_size": 384},
    "slime-april": {"over_sampling_batch_size": 48},
    "slime-fully-async": {"sglang_server_concurrency": 6},
}
"""Settings under which a preset does what it is for; the others run with their defaults."""
SAMPLES = 256
"""Of a step, whatever the preset."""
PROMPTS = {"2-grpo": 128, "brorl": 1}
"""Of a step, for presets that have a group size of their own."""


def _give(tree: dict[str, Any], needs: dict[str, Any]) -> None:
    """What a preset needs, on the GPUs of the benchmark in place of the fewest that it works with."""
    for path, value in needs.items():
        section, _, key = path.partition(".")
        if key == "pools":
            times = tree["rollout"]["gpus"] // needs["rollout.gpus"]
            tree["rollout"]["pools"] = [{**pool, "gpus": pool["gpus"] * times} for pool in value]
        elif key not in ("gpus", "data_parallel"):
            tree.setdefault(section, {})[key] = value
    if "cluster.gpus" in needs:
        tree["cluster"]["gpus"] = 12  # Four of the eight replicas are on the trainer's GPUs.


def scenario(preset: str) -> ResolvedScenario:
    """256 samples, in groups of 8 unless the preset says otherwise, on 8 + 8 GPUs or 16 shared ones."""
    tree: dict[str, Any] = {
        "name": preset,
        "model": "Qwen3-8B",
        "cluster": {"device": "H100-SXM", "gpus": 16},
        "rollout": {
            "gpus": 8,
            "scheduling_policy": "priority",
            "kv_blocks": 25_000,
            "step_time": {
                "source": "coefficients",
                "base_seconds": 5e-3,
                "per_sequence_seconds": 20e-6,
                "per_kv_token_seconds": 60e-9,
                "per_prefill_token_seconds": 30e-6,
            },
        },
        "trainer": {"gpus": 8, "mfu": 0.4},
        "workload": {
            "prompts_per_step": 32,
            "group_size": 8,
            "prompt_tokens": 400,
            "response_tokens": {"law": "lognormal", "median_tokens": 1667, "sigma": 0.9, "cap_tokens": 16384},
            "intra_group_correlation": 0.6,
        },
        "policy": {"preset": preset, **PARAMETERS.get(preset, {})},
        "run": {"steps": 8, "warmup_steps": 0},
    }
    _give(tree, load_preset(preset).needs)
    tree["workload"]["prompts_per_step"] = PROMPTS.get(preset, SAMPLES // tree["workload"]["group_size"])
    try:
        return resolve(Scenario.model_validate(tree))
    except ResolveError as error:
        if not any("shares the GPUs" in found.allowed for found in error.errors):
            raise
    tree["rollout"]["gpus"] = tree["trainer"]["gpus"] = 16
    return resolve(Scenario.model_validate(tree))


def once(made: ResolvedScenario) -> tuple[float, float, int, int]:
    """(CPU seconds, the controller's CPU seconds, events, samples ended)."""
    workload = made.workload_of(0)
    simulation = Simulation(make_controller(made, workload), make_world(made, workload))
    gc.collect()
    start = time.process_time()
    with collector_paused():
        log = simulation.run(made.scenario.run.steps)
    seconds = time.process_time() - start
    ended = sum(isinstance(row.event, Finished) and row.event.reason in ("stop", "length") for row in log.decisions)
    return seconds, decided(make_controller(made, workload), log), log.events, ended


def decided(controller: Controller, log: RunLog) -> float:
    """CPU seconds of the decisions alone: a fresh controller takes the recorded events."""
    gc.collect()
    start = time.process_time()
    with collector_paused():
        for row in log.decisions:
            controller.handle(row.now, row.event)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{'preset':28s} {'us/event':>9s} {'ratio':>6s} {'events/sample':>14s} {'controller':>11s}")
    simplest = scenario(SIMPLEST)
    once(simplest)
    for name in options.presets or preset_names():
        try:
            made = scenario(name)
            once(made)
            pairs = [(once(simplest), once(made)) for _ in range(options.repeats)]
        except (ResolveError, DeadlockError) as error:
            print(f"{name:28s} not run: {str(error).splitlines()[0]}")
            continue
        per_event = statistics.median(_per_event(run) for _, run in pairs)
        ratio = statistics.median(_per_event(run) / _per_event(base) for base, run in pairs)
        share = statistics.median(controller / seconds for _, (seconds, controller, _, _) in pairs)
        events, ended = pairs[0][1][2:]
        print(f"{name:28s} {per_event:9.1f} {ratio:6.2f} {events / ended:14.2f} {share:11.0%}", flush=True)


def _per_event(run: tuple[float, float, int, int]) -> float:
    seconds, _, events, _ = run
    return 1e6 * seconds / events


if __name__ == "__main__":
    main()
