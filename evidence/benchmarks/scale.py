"""What a run costs: 10,000 rollouts on 64 replicas, synchronous and asynchronous, and 100,000 on 512.

    python evidence/benchmarks/scale.py [--stepped] [--profile]

Prints CPU seconds (median of several), events, simulated tokens a CPU-second, and the ratios between cases; with
``--stepped`` also the engine that walks every step, in the same process.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import statistics
import time

from rlsim.core.log import RunLog
from rlsim.executor.run import make_controller, make_world
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.schema import Scenario
from rlsim.sim.collector import collector_paused
from rlsim.sim.simulation import Simulation


def scenario(
    rollouts: int,
    replicas: int,
    policy: dict[str, object],
    steps: int,
    in_step: int,
    trainers: int,
    length_scale: float = 1,
) -> ResolvedScenario:
    """Groups of eight with a long tail: mean about 2,460 tokens, cap 16,384."""
    return resolve(
        Scenario.model_validate(
            {
                "name": f"{rollouts} rollouts on {replicas} replicas",
                "model": "Qwen3-8B",
                "cluster": {"device": "H100-SXM", "gpus": replicas + trainers},
                "rollout": {
                    "gpus": replicas,
                    "kv_blocks": round(25_000 * length_scale),
                    "step_time": {
                        "source": "coefficients",
                        "base_seconds": 5e-3,
                        "per_sequence_seconds": 20e-6,
                        "per_kv_token_seconds": 60e-9,
                        "per_prefill_token_seconds": 30e-6,
                    },
                },
                "trainer": {"gpus": trainers, "mfu": 0.4},
                "workload": {
                    "prompts_per_step": in_step // 8,
                    "group_size": 8,
                    "prompt_tokens": {"law": "lognormal", "median_tokens": 400, "sigma": 0.6, "cap_tokens": 4096},
                    "response_tokens": {
                        "law": "lognormal",
                        "median_tokens": 1667 * length_scale,
                        "sigma": 0.9,
                        "cap_tokens": round(16384 * length_scale),
                    },
                },
                "policy": policy,
                "run": {"steps": steps, "warmup_steps": 0},
            }
        )
    )


CASES = {
    "sync, 10,000 on 64": (10_000, 64, {"preset": "sync-disaggregated"}, 1, 10_000, 64),
    "async, 6,144 in flight, 20 updates on 64": (
        10_000,
        64,
        {"preset": "pipelinerl", "llm_max_rollouts": 96},
        20,
        64,
        1024,
    ),
    "sync, 100,000 on 512": (100_000, 512, {"preset": "sync-disaggregated"}, 1, 100_000, 512),
}


FIRST = "sync, 10,000 on 64 jumped"


def once(made: ResolvedScenario, jump: bool) -> tuple[float, RunLog]:
    """CPU seconds of one run, set-up left out."""
    workload = made.workload_of(0)
    world = make_world(made, workload)
    for replica in world.replicas:
        replica.jump = jump
    simulation = Simulation(make_controller(made, workload), world)
    gc.collect()
    start = time.process_time()
    with collector_paused():
        log = simulation.run(made.scenario.run.steps)
    return time.process_time() - start, log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stepped", action="store_true", help="also run the engine that walks every step")
    parser.add_argument("--profile", action="store_true", help="profile the first case")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.profile:
        made = scenario(*CASES["sync, 10,000 on 64"])
        cProfile.runctx("once(made, True)", globals(), {"made": made}, sort="tottime")
        return
    import scipy.special  # noqa: F401 -- not to be timed with the first case

    per_rollout: dict[str, float] = {}
    total: dict[str, float] = {}
    for name, case in CASES.items():
        made = scenario(*case)
        for jump in (True, False) if options.stepped and case[0] <= 10_000 else (True,):
            runs = [once(made, jump) for _ in range(options.repeats if jump else 1)]
            seconds, log = statistics.median(cpu for cpu, _ in runs), runs[-1][1]
            finished = sum(type(decision.event).__name__ == "Finished" for decision in log.decisions)
            engine = "jumped" if jump else "stepped"
            per_rollout[f"{name} {engine}"], total[f"{name} {engine}"] = seconds / finished, seconds
            print(
                f"{name:50s} {engine:8s} {seconds:6.2f} CPU s  {log.events:9,d} events  {finished:7,d} rollouts  "
                f"{log.generated_tokens / 1e6:6.1f} M tokens  {log.generated_tokens / seconds / 1e6:6.1f} M/CPU-s"
                f"  {1e6 * seconds / finished:6.1f} us/rollout",
                flush=True,
            )
    base = per_rollout[FIRST]
    for name, seconds in per_rollout.items():
        run = total[name] / total[FIRST]
        print(f"CPU against the first case: a rollout {seconds / base:5.2f}, the run {run:5.2f}  {name}")


if __name__ == "__main__":
    main()
