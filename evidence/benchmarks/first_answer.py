"""From a configuration and a log to an answer: CPU seconds of import, fit, prediction and explanation.

    python evidence/benchmarks/first_answer.py [--steps 40]

Writes a launch script of verl and a log of its steps into a temporary folder, gives both to the commands as a new user
would, one process each, and prints the CPU seconds and the first line of each answer.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

LAUNCH = """python3 -m verl.trainer.main_ppo \\
  algorithm.adv_estimator=grpo \\
  data.train_batch_size=64 data.max_prompt_length=1024 data.max_response_length=8192 \\
  actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct \\
  actor_rollout_ref.actor.ppo_mini_batch_size=64 \\
  actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 \\
  actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
  actor_rollout_ref.rollout.gpu_memory_utilization=0.7 \\
  trainer.nnodes=1 trainer.n_gpus_per_node=8
"""
SECONDS_PER_TOKEN = {"gen": 0.028, "old_log_prob": 0.0045, "update_actor": 0.0155}
"""Of the mean response, for the 512 samples of a step."""
RUN = ("--set", "run.steps=4", "--set", "run.warmup_steps=1", "--set", "run.replications=2", "--workers", "1")


def log_lines(steps: int, seed: int = 7) -> Iterator[str]:
    """Steps of a run whose responses grow, each phase in proportion to their length and with noise of 1 %."""
    draws = random.Random(seed)
    for step in range(1, steps + 1):
        mean = (1500 + 20 * step) * draws.lognormvariate(0, 0.15)
        phases = {name: rate * mean * draws.gauss(1, 0.01) for name, rate in SECONDS_PER_TOKEN.items()}
        longest = min(8192.0, mean * draws.uniform(4, 6))
        data = {f"timing_s/{name}": round(seconds, 3) for name, seconds in phases.items()}
        data |= {"timing_s/step": round(sum(phases.values()) + draws.gauss(9, 0.3), 3), "prompt_length/mean": 240.0}
        data |= {"response_length/mean": round(mean, 1), "response_length/max": round(longest, 1)}
        yield json.dumps({"step": step, "data": data | {"response_length/clip_ratio": float(longest == 8192)}})


def timed(*arguments: str) -> tuple[float, str]:
    """CPU seconds of one command and what it prints; ends the benchmark where the command fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "from rlsim.cli.main import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "80"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> None:
    """Time the four commands and print a line each and the sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40, help="of the log")
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        launch, log = Path(folder, "launch.sh"), Path(folder, "log.jsonl")
        imported, fitted = Path(folder, "imported.yaml"), Path(folder, "fitted")
        launch.write_text(LAUNCH, encoding="utf-8")
        log.write_text("".join(f"{line}\n" for line in log_lines(steps)), encoding="utf-8")
        commands = {
            "import-config": ("import-config", str(launch), "--from", "verl", "--out", str(imported)),
            "calibrate logs": ("calibrate", "logs", str(log), "--base", str(imported), "--out", str(fitted)),
            "run": ("run", str(fitted / "scenario.yaml"), *RUN),
            "explain": ("explain", str(fitted / "scenario.yaml"), *RUN),
        }
        total = 0.0
        for name, arguments in commands.items():
            seconds, text = timed(*arguments)
            total += seconds
            answer = next((line for line in text.splitlines() if ":" in line), "")
            print(f"{name:<15} {seconds:6.1f} CPU s  {answer[:52]}", flush=True)
    print(f"{'in all':<15} {total:6.1f} CPU s, from a launch script and a log of {steps} steps to the explanation")


if __name__ == "__main__":
    main()
