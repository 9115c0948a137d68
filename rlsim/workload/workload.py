"""What is asked of the cluster: prompts, groups, lengths, turns and tools, decided by identity.

A sample is (prompt, attempt, member). Everything that chance decides about it is a function of the seed and
that identity, never of the order in which a policy asks: two policies compared under one seed meet the same
draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rlsim.core.checks import whole, within
from rlsim.core.errors import ParameterError
from rlsim.core.section import Section
from rlsim.core.streams import FloatArray, IndexedUniforms, generator
from rlsim.core.view import as_made
from rlsim.workload.draws import ClassLengths, ClassOf, Copula, GroupDraws, Independent
from rlsim.workload.fitting import group_max_ratio
from rlsim.workload.latency import LatencyDistribution
from rlsim.workload.lengths import LengthDistribution, described
from rlsim.workload.mismatch import Mismatch

ATTEMPTS_PER_EPOCH = 1000
"""Epoch e visits a prompt as attempt ``e * 1000``; each recycling of the prompt adds one."""

LARGEST_DATASET_PROMPTS = 100_000_000
LARGEST_GROUP = 65_536
_EPOCHS_KEPT = 4
_PROMPTS_KEPT = 1 << 18
_FORESEEN = 64
_FORESEEN_SAMPLES = 4096
"""Most prompts, and samples of them, whose lengths are drawn together as the loader comes to them."""


class Drift(Section):
    """How responses lengthen while the model learns.

    Lengths change by a factor (1 + growth) a version, within [1 / max_factor, max_factor].
    """

    growth_per_version: float = Field(default=0.0, gt=-1, description="Relative growth of the length a version")
    max_factor: float = Field(default=1.0, ge=1, le=1e6, description="Bound on the growth, as a factor")

    def factor(self, version: int) -> float:
        """What the uncapped length is multiplied by at ``version``."""
        limit = math.log(self.max_factor)
        return math.exp(min(limit, max(-limit, version * math.log1p(self.growth_per_version))))


@dataclass(frozen=True, slots=True)
class TurnDraws:
    """Trajectories of several turns. ``count`` is a law of whole numbers of turns; its cap is the most.

    The count shares the group's correlation and the prompt's score with the lengths: a long prompt has both
    longer and more turns. Tool latency (seconds) and output (tokens) are independent of all else.
    """

    count: LengthDistribution
    tool_latency: LatencyDistribution
    tool_output_tokens: LengthDistribution


class _Draws:
    """Everything remembered of what was drawn; forgetting it changes no value."""

    def __init__(self, workload: Workload) -> None:
        seed, size, turns = workload.seed, workload.group_size, workload.turns
        copula = Copula(seed, workload.intra_group_correlation)
        self.responses = [GroupDraws(seed, "response", size, copula, law.uncapped) for law in workload.response_lengths]
        self.class_of = ClassOf(seed, [kind.share for kind in workload.classes])
        self.prompt_uniforms = IndexedUniforms(seed, "prompt length")
        self.prompt_tokens: dict[int, int] = {}
        self.epochs: dict[int, npt.NDArray[np.int64]] = {}
        self.first_foreseen = self.foreseen = 0
        """Draws of the loader from and before which prompts and their lengths have been looked up together."""
        self.next_prompts: list[int] = []
        """Prompts of these draws."""
        self.tools = None if turns is None else _Tools(seed, size, copula, turns)
        self.rewards: GroupDraws | None = None
        if workload.reward_latency is not None:
            self.rewards = GroupDraws(seed, "reward", size, Independent(), workload.reward_latency.quantile)


class _Tools:
    def __init__(self, seed: int, size: int, copula: Copula, turns: TurnDraws) -> None:
        self.counts = GroupDraws(seed, "turns", size, copula, turns.count.quantile)
        self.latencies = GroupDraws(seed, "tool latency", size, Independent(), turns.tool_latency.quantile)
        self.outputs = GroupDraws(seed, "tool output", size, Independent(), turns.tool_output_tokens.quantile)


@dataclass(frozen=True, slots=True)
class Workload:
    """The prompts and the laws of what they ask for.

    ``response_length`` is the law of one turn at version 0. ``intra_group_correlation`` in [0, 1) is that of
    the normal scores within a group; for lognormal lengths it is the intraclass correlation of log lengths.
    With ``classes`` every prompt is of one of them, and their laws replace those of the workload.
    """

    seed: int
    group_size: int
    dataset_prompts: int
    prompt_length: LengthDistribution
    response_length: LengthDistribution
    intra_group_correlation: float = 0.0
    drift: Drift | None = None
    turns: TurnDraws | None = None
    reward_latency: LatencyDistribution | None = None
    mismatch: Mismatch | None = None
    classes: tuple[ClassLengths, ...] = ()
    _draws: _Draws = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole("seed", self.seed, low=0, high=2**63 - 1)
        whole("group_size", self.group_size, high=LARGEST_GROUP)
        whole("dataset_prompts", self.dataset_prompts, high=LARGEST_DATASET_PROMPTS)
        within("intra_group_correlation", self.intra_group_correlation, 0.0, 1.0, open_above=True)
        object.__setattr__(self, "_draws", _Draws(self))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Travels without what it remembers."""
        return as_made(self)

    @property
    def prompt_lengths(self) -> tuple[LengthDistribution, ...]:
        """Laws of prompt lengths by class; one without classes."""
        return tuple(kind.prompt_length for kind in self.classes) or (self.prompt_length,)

    @property
    def response_lengths(self) -> tuple[LengthDistribution, ...]:
        """Laws of a turn's lengths by class; one without classes."""
        return tuple(kind.response_length for kind in self.classes) or (self.response_length,)

    @property
    def longest_prompt_tokens(self) -> int:
        """Most tokens that a prompt can have."""
        return max(law.cap_tokens for law in self.prompt_lengths)

    def longest_drawn_prompt_tokens(self) -> int:
        """Most tokens that the laws draw for a prompt: less than the cap where a law ends before it."""
        return max(int(law.quantile(np.ones(1))[0]) for law in self.prompt_lengths)

    @property
    def longest_tokens(self) -> int:
        """Most tokens that a trajectory can have, prompt, tools and all turns."""
        count = 1 if self.turns is None else self.turns.count.cap_tokens
        tools = 0 if self.turns is None else self.turns.tool_output_tokens.cap_tokens * (count - 1)
        response = max(law.cap_tokens for law in self.response_lengths)
        return self.longest_prompt_tokens + response * count + tools

    def prompt_at(self, draw: int) -> tuple[int, int]:
        """(prompt, first attempt) of the ``draw``-th prompt taken from the loader, counted from 0.

        Each epoch visits every prompt once, in an order of its own.
        """
        draws = self._draws
        epoch, place = divmod(draw, self.dataset_prompts)
        if draws.first_foreseen <= draw < draws.foreseen:
            return draws.next_prompts[draw - draws.first_foreseen], epoch * ATTEMPTS_PER_EPOCH
        order = draws.epochs.get(epoch)
        if order is None:
            known = self._draws.epochs
            if len(known) >= _EPOCHS_KEPT:
                del known[next(iter(known))]
            known[epoch] = generator(self.seed, "epoch", epoch).permutation(self.dataset_prompts)
            order = known[epoch]
        return int(order[place]), epoch * ATTEMPTS_PER_EPOCH

    def loaded_tokens(self, draw: int) -> int:
        """Length of the ``draw``-th prompt that the loader takes; draws come in order, so the next are foreseen."""
        if draw >= self._draws.foreseen:
            # Draw the lengths of the prompts from ``draw`` on, and of the responses to them, in one go.
            epoch, place = divmod(draw, self.dataset_prompts)
            _, attempt = self.prompt_at(draw)
            count = max(1, min(_FORESEEN, _FORESEEN_SAMPLES // self.group_size))
            prompts: list[int] = self._draws.epochs[epoch][place : place + count].tolist()
            by_class: dict[int, list[int]] = {}
            for prompt in prompts:
                by_class.setdefault(self.class_of(prompt), []).append(prompt)
            for kind, alike in by_class.items():
                self._measure(kind, alike)
                self._draws.responses[kind].foresee(alike, attempt)
            self._draws.next_prompts = prompts
            self._draws.first_foreseen, self._draws.foreseen = draw, draw + len(prompts)
        return self.prompt_tokens(self.prompt_at(draw)[0])

    def prompt_tokens(self, prompt: int) -> int:
        """Length of the prompt, the same at every attempt."""
        tokens = self._draws.prompt_tokens.get(prompt)
        if tokens is None:
            self._measure(self.class_of(prompt), [prompt])
            tokens = self._draws.prompt_tokens[prompt]
        return tokens

    def _measure(self, kind: int, prompts: Sequence[int]) -> None:
        """Lengths of prompts of one class."""
        known = self._draws.prompt_tokens
        if len(known) >= _PROMPTS_KEPT:
            known.clear()
        quantiles = np.array([self._draws.prompt_uniforms[prompt] for prompt in prompts])
        known.update(zip(prompts, self.prompt_lengths[kind].quantile(quantiles).tolist(), strict=True))

    def class_of(self, prompt: int) -> int:
        """Place among ``classes`` of the prompt's own; 0 without classes."""
        return self._draws.class_of(prompt) if self.classes else 0

    def response_cap_tokens(self, prompt: int) -> int:
        """Most tokens of a turn."""
        law = self.classes[self.class_of(prompt)].response_length if self.classes else self.response_length
        return law.cap_tokens

    def response_quantiles(self, prompt: int, attempt: int, turn: int = 0, members: int | None = None) -> FloatArray:
        """Length quantiles of the first ``members`` (by default, the group): shape (members,).

        Surplus members follow the group's; asking for them changes nobody's quantile.
        """
        count = self.group_size if members is None else members
        return self._draws.responses[0].quantiles(prompt, attempt, turn, count)

    def response_tokens(
        self, prompt: int, attempt: int, member: int, turn: int = 0, version: int = 0, factor: float = 1.0
    ) -> int:
        """Tokens of a turn whose first token is made by weights of ``version``; its quantile ignores that.

        ``factor`` is what the outcome of the sample makes of its uncapped length.
        """
        tokens = factor * self._draws.responses[self.class_of(prompt)].value(prompt, attempt, turn, member)
        if self.drift is not None:
            tokens *= self.drift.factor(version)
        return round(min(self.response_cap_tokens(prompt), max(1.0, tokens)))

    def continued_tokens(
        self, sample: tuple[int, int, int], turn: int, version: int, factor: float, generated: int
    ) -> int:
        """Tokens of a turn that has ``generated`` tokens already and goes on: its law, given that it is longer.

        Of (prompt, attempt, member); otherwise as ``response_tokens``, which its quantile is common with.
        """
        prompt, attempt, member = sample
        kind = self.class_of(prompt)
        scale = factor * (1.0 if self.drift is None else self.drift.factor(version))
        law, quantiles = self.response_lengths[kind], self._draws.responses[kind].quantiles
        own = quantiles(prompt, attempt, turn, member + 1)[member]
        shorter = law.cdf(np.array([generated / scale]))
        tokens = scale * float(law.uncapped(shorter + (1 - shorter) * own)[0])
        return round(min(self.response_cap_tokens(prompt), max(generated + 1.0, tokens)))

    def reward_latency_seconds(self, prompt: int, attempt: int, member: int) -> float:
        """Time to score the sample; 0 without a law."""
        rewards = self._draws.rewards
        return 0.0 if rewards is None else rewards.value(prompt, attempt, 0, member)

    def turn_count(self, prompt: int, attempt: int, member: int) -> int:
        """Turns of the trajectory; 1 without ``turns``."""
        tools = self._draws.tools
        return 1 if tools is None else int(tools.counts.value(prompt, attempt, 0, member))

    def tool_latency_seconds(self, prompt: int, attempt: int, member: int, turn: int) -> float:
        """Time of the tool call that follows ``turn``; ParameterError without ``turns``."""
        return self._required_tools().latencies.value(prompt, attempt, turn, member)

    def tool_output_tokens(self, prompt: int, attempt: int, member: int, turn: int) -> int:
        """Tokens that the tool call after ``turn`` adds to the context; ParameterError without ``turns``."""
        return int(self._required_tools().outputs.value(prompt, attempt, turn, member))

    def _required_tools(self) -> _Tools:
        if self._draws.tools is None:
            raise ParameterError("turns", None, "the law of turns, in a workload that calls tools")
        return self._draws.tools

    def expected_group_max_ratio(self, members: int | None = None) -> float:
        """M_tail: mean of the longest of ``members`` (by default, the group) over the mean, for one turn.

        Of ``response_length``, whatever the classes.
        """
        count = self.group_size if members is None else whole("members", members, high=LARGEST_GROUP)
        return group_max_ratio(self.response_length, count, self.intra_group_correlation)

    def describe(self) -> str:
        """Mean, median, cap, truncated share, correlation and M_tail of ``response_length``, in one line."""
        law, size = self.response_length, self.group_size
        median = int(law.quantile(np.array([0.5]))[0])
        per = " a turn" if self.turns else ""
        return (
            f"response tokens{per}: {described(law)}; mean {law.mean_tokens():,.0f}, median {median:,}, "
            f"rho {self.intra_group_correlation:g}, M_tail({size}) {self.expected_group_max_ratio():.2f}"
        )
