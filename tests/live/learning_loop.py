"""A plain learning loop in one process: the trainer's own rank, and the model itself as the engine.

``python -m learning_loop --task successor --seeds 3`` prints learning curves; ``--lag 16`` has samples made by weights
that many steps old.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rlsim.live.protocols import Experience
from rlsim.live.tasks.registry import make_task
from rlsim.live.tasks.verifiable import Verifiable
from rlsim.live.torch.grpo import Objective, effective_share
from rlsim.live.torch.rank import Rank
from rlsim.live.torch.recipe import Recipe, TrainRequest
from rlsim.live.torch.small_llama import LlamaShape, write_model


@dataclass(frozen=True)
class Study:
    """A learning run."""

    task: str = "successor"
    sizes: tuple[tuple[str, int], ...] = ()
    seed: int = 0
    steps: int = 120
    prompts: int = 16
    group: int = 16
    learning_rate: float = 1e-3
    most_weight: float | None = 2.0
    lag: int = 0
    """Steps by which the weights that sample are older than those that are trained."""
    hidden: int = 64
    layers: int = 2
    updates: int = 1
    spread: float = 0.05

    def of_seed(self, seed: int) -> Study:
        """The same with another model, other prompts and other luck."""
        return replace(self, seed=seed)


@dataclass(frozen=True)
class Curve:
    """Reward of the newest weights at every step, and what the trainer saw."""

    rewards: tuple[float, ...]
    """Of samples that the weights of the step make themselves."""
    ess: tuple[float, ...]
    seconds: float

    def final(self, steps: int = 10) -> float:
        """Mean of the last steps."""
        return sum(self.rewards[-steps:]) / steps

    def line(self, points: int = 12) -> str:
        """Mean rewards of that many stretches, for people."""
        every = max(1, len(self.rewards) // points)
        starts = range(0, len(self.rewards) - every + 1, every)
        means = " ".join(f"{sum(self.rewards[at : at + every]) / every:.2f}" for at in starts)
        share = sum(self.ess) / len(self.ess)
        return f"{means} | last 30 {self.final(30):.3f}, ess {share:.2f}, {self.seconds:.0f} s"


def learn(study: Study, folder: Path) -> Curve:
    """Run it; the same study gives the same curve."""
    task = make_task(study.task, dict(study.sizes), study.seed)
    shape = LlamaShape(
        task.vocabulary.size, study.layers, study.hidden, heads=study.hidden // 32, feed_forward=2 * study.hidden
    )
    model = write_model(shape, folder / f"model-{study.seed}", study.seed, study.spread)
    recipe = Recipe(
        model,
        folder,
        Objective(most_weight=study.most_weight),
        learning_rate=study.learning_rate,
        micro_batch_tokens=4096,
    )
    rank, draw = Rank(recipe), torch.Generator().manual_seed(study.seed)
    engine = Rank(recipe).network.model
    past: deque[dict[str, Any]] = deque(maxlen=study.lag + 1)
    rewards, shares, start = [], [], time.perf_counter()
    for step in range(study.steps):
        past.append({name: value.clone() for name, value in rank.network.model.state_dict().items()})
        engine.load_state_dict(past[0])
        numbers = range(step * study.prompts, (step + 1) * study.prompts)
        batch = sampled(engine, task, numbers, study.group, draw)
        part = rank.train(TrainRequest(tuple(batch), study.updates))
        now = batch if not study.lag else sampled(rank.network.model, task, numbers, 1, draw)
        rewards.append(sum(sample.reward for sample in now) / len(now))
        shares.append(effective_share(list(part.log_weights.values())))
    return Curve(tuple(rewards), tuple(shares), time.perf_counter() - start)


def sampled(model: Any, task: Verifiable, numbers: Sequence[int], group: int, draw: Any) -> list[Experience]:
    """``group`` samples of each prompt, at temperature 1; all prompts are equally long."""
    asked = [number for number in numbers for _ in range(group)]
    rows = torch.tensor([list(task.prompt(number)) for number in asked])
    width, log_probs = rows.shape[1], []
    with torch.no_grad():
        for _ in range(task.most_response_tokens):
            law = model(input_ids=rows, use_cache=False, logits_to_keep=1).logits[:, -1].log_softmax(1)
            token = torch.multinomial(law.exp(), 1, generator=draw)
            log_probs.append(law.gather(1, token))
            rows = torch.cat([rows, token], 1)
    told = torch.cat(log_probs, 1).tolist()
    made = rows[:, width:].tolist()
    return [_experience(task, at, number, made[at], told[at]) for at, number in enumerate(asked)]


def _experience(task: Verifiable, sample: int, number: int, made: list[int], told: list[float]) -> Experience:
    length = made.index(task.eos) + 1 if task.eos in made else len(made)
    response = made[:length]
    return Experience(
        sample,
        number,
        task.prompt(number),
        response,
        [True] * length,
        told[:length],
        ((0, length),),
        task.reward(number, response),
    )


def main() -> None:
    defaults = Study()
    parser = argparse.ArgumentParser()
    for name in ("task", "steps", "prompts", "group", "learning_rate", "lag", "hidden", "layers", "updates", "spread"):
        value = getattr(defaults, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cap", type=float, default=2.0, help="0: no correction")
    parser.add_argument("--size", action="append", default=[], help="name=value")
    given = vars(parser.parse_args())
    seeds, cap, sizes = given.pop("seeds"), given.pop("cap"), given.pop("size")
    pairs = tuple((one.split("=")[0], int(one.split("=")[1])) for one in sizes)
    study = Study(**given, most_weight=cap or None, sizes=pairs)
    torch.set_num_threads(1)
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            curve = learn(study.of_seed(seed), Path(folder))
        print(f"seed {seed}: {curve.line()}", flush=True)


if __name__ == "__main__":
    main()
