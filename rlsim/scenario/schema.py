"""What a scenario may say: its fields, their units, ranges and defaults, and which of them contradict.

Left to the builder, which knows the names: the model, the device, the profile, the parameters of a length law
and of a policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field

from rlsim.core.errors import ParameterError
from rlsim.core.section import Count, Fraction, Name, Positive, Seconds, Section
from rlsim.costs.trainer import TrainerConfig
from rlsim.learning.model import Learning
from rlsim.scenario.case import Case
from rlsim.scenario.discipline import DisciplineConfig
from rlsim.scenario.live import Live
from rlsim.scenario.pools import PoolConfig, pool_errors
from rlsim.scenario.published import Published, PublishedEntry
from rlsim.scenario.search import Search, SearchBudget
from rlsim.scenario.step_time import StepTimeSource
from rlsim.scenario.sync import SyncConfig
from rlsim.workload.mismatch import Mismatch
from rlsim.workload.workload import Drift

__all__ = ["Published", "Scenario", "Section"]


class Law(Section):
    """A distribution: its name and the parameters of that name; a bare number is the constant law."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"allowed": "a number, or a mapping with law and its parameters"}
    )

    law: Name = Field(description="Name of the distribution")

    @property
    def fields(self) -> dict[str, Any]:
        """The parameters beside the name, as written."""
        return dict(self.model_extra or {})

    def contradictions(self) -> Iterator[ParameterError]:
        """Lengths and times below zero, at any depth: the unit in the key's name says what it is."""
        return _negative_quantities(self.fields, "")


def _negative_quantities(fields: Mapping[str, Any], under: str) -> Iterator[ParameterError]:
    for key, value in fields.items():
        if isinstance(value, dict):
            yield from _negative_quantities(value, f"{under}{key}.")
        elif isinstance(value, list):
            yield from _negative_quantities({str(index): item for index, item in enumerate(value)}, f"{under}{key}.")
        elif isinstance(value, int | float) and value < 0 and key.endswith(("tokens", "seconds")):
            yield ParameterError(f"{under}{key}", value, "a number, at least 0")


def _spelt_out(unit: str, value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"law": "constant", unit: value} if is_number else value


TokensLaw = Annotated[Law, BeforeValidator(partial(_spelt_out, "tokens"))]
"""A law of whole numbers (tokens, or turns); a bare number becomes ``{law: constant, tokens: number}``."""
SecondsLaw = Annotated[Law, BeforeValidator(partial(_spelt_out, "seconds"))]
"""A law of times; a bare number becomes ``{law: constant, seconds: number}``."""


class Cluster(Section):
    """The machines."""

    device: Name = Field(description="GPU, by its catalogue name")
    gpus: Count = Field(description="GPUs in all")
    gpus_per_node: Count = Field(default=8, description="GPUs that share the fast link of a node")
    price_usd_per_gpu_hour: Seconds | None = Field(default=None, description="USD; None: the catalogue's assumption")
    allow_other_hardware: bool = Field(default=False, description="Accept a profile measured on another device")


class Rollout(Section):
    """The inference replicas and the limits of their scheduler, under vLLM's names."""

    gpus: Count = Field(description="GPUs that generate")
    tensor_parallel: Count = Field(default=1, description="Ranks that split each layer")
    pipeline_parallel: Count = Field(default=1, description="Stages that split the layers")
    expert_parallel: Count = Field(default=1, description="Ranks that split the experts")
    data_parallel: Count = Field(default=1, description="Ranks in lockstep inside one replica")
    max_num_seqs: Count = Field(default=256, description="Sequences in a step")
    max_num_batched_tokens: Count = Field(default=8192, description="Tokens in a step")
    max_model_len: int | None = Field(default=None, ge=2, description="Tokens of prompt and response; None: no limit")
    block_size: Count = Field(default=16, description="Tokens in a KV block")
    kv_blocks: Count | None = Field(default=None, description="KV blocks of a replica; None: what the memory holds")
    gpu_memory_utilization: Fraction = Field(default=0.9, description="Share of the GPU memory that the engine may use")
    enable_prefix_caching: bool = Field(default=True, description="Reuse KV blocks of equal prefixes")
    enable_chunked_prefill: bool = Field(default=True, description="Split long prompts over steps")
    scheduling_policy: Literal["fcfs", "priority"] = Field(default="fcfs", description="Order of the waiting queue")
    kv_while_waiting: Literal["keep", "drop", "offload"] = Field(default="keep", description="KV during a tool call")
    step_time: StepTimeSource = Field(description="Cost of an engine step")
    discipline: DisciplineConfig = Field(
        default=DisciplineConfig(), description="Rules of the engine's scheduler beyond vLLM's"
    )
    kv_link_bytes_per_second: Positive | None = Field(
        default=None, description="Of one GPU, for KV that moves to another replica; None: its share of the network"
    )
    pools: tuple[PoolConfig, ...] = Field(
        default=(), strict=False, description="Groups of replicas that differ; none: alike"
    )

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    def sections(self) -> tuple[Rollout, ...]:
        """This section as it holds for each pool, its GPUs those of the pool; itself where replicas are alike."""
        return tuple(self.model_copy(update={**pool.overrides(), "pools": ()}) for pool in self.pools) or (self,)

    def contradictions(self) -> Iterator[ParameterError]:
        """Splits that do not divide, scheduler limits that vLLM refuses, and pools that do not add up."""
        yield from pool_errors(self) if self.pools else self.engine_errors()

    def engine_errors(self) -> Iterator[ParameterError]:
        """Faults of one kind of replica."""
        if self.gpus % self.gpus_per_replica:
            split = "tensor_parallel * pipeline_parallel * data_parallel"
            yield ParameterError("gpus", self.gpus, f"a multiple of {self.gpus_per_replica} ({split})")
        ranks = self.tensor_parallel * self.data_parallel
        if ranks % self.expert_parallel:
            allowed = f"a divisor of {ranks} (tensor_parallel * data_parallel)"
            yield ParameterError("expert_parallel", self.expert_parallel, allowed)
        budget, longest = self.max_num_batched_tokens, self.max_model_len
        if budget < self.max_num_seqs:
            yield ParameterError("max_num_batched_tokens", budget, f"at least max_num_seqs ({self.max_num_seqs})")
        if not self.enable_chunked_prefill and (longest is None or budget < longest):
            bound = (
                "set, as chunked prefill is off" if longest is None else f"at most {budget}, as chunked prefill is off"
            )
            yield ParameterError("max_model_len", longest, f"{bound} (max_num_batched_tokens must hold a whole prompt)")
        if self.kv_blocks is not None and longest is not None and self.kv_blocks * self.block_size < longest:
            yield ParameterError("kv_blocks", self.kv_blocks, f"enough for max_model_len ({longest} tokens)")
        yield from self.discipline.disagreements(
            self.scheduling_policy, self.enable_chunked_prefill, self.max_num_batched_tokens
        )


class SwitchingConfig(Section):
    """What it costs a colocated GPU to change its role."""

    sleep_seconds: Seconds | None = Field(
        default=None, description="Engine to trainer; None: from bytes over the host link"
    )
    wake_seconds: Seconds | None = Field(
        default=None, description="Trainer to engine; None: from bytes over the host link"
    )
    host_link_bytes_per_second: Positive | None = Field(
        default=None, description="Of one GPU; None: the cost model's own"
    )


class TurnsConfig(Section):
    """Trajectories of several generate calls with tool calls between them."""

    count: TokensLaw = Field(description="Turns of a trajectory")
    tool_latency_seconds: SecondsLaw = Field(description="Time of a tool call")
    tool_output_tokens: TokensLaw = Field(description="Tokens that a tool call appends")
    environments: Count | None = Field(default=None, description="Calls that run at once; None: no limit")


class Reward(Section):
    """Scoring of finished samples."""

    latency_seconds: SecondsLaw = Field(description="Time to score a sample")
    workers: Count | None = Field(default=None, description="Scores that run at once; None: no limit")


class RequestClassConfig(Section):
    """Prompts of one kind, known by who sends them: a tenant, a route, a task."""

    share: Positive = Field(description="Of the prompts, relative to the other classes'")
    prompt_tokens: TokensLaw | None = Field(default=None, description="None: as of the workload")
    response_tokens: TokensLaw | None = Field(default=None, description="None: as of the workload")
    weight: Positive = Field(default=1.0, description="Service it is owed, relative to the other classes'")
    priority: int = Field(default=0, description="Rank among the classes, the lowest first")


class WorkloadConfig(Section):
    """Prompts, groups and lengths."""

    prompts_per_step: Count = Field(description="Prompts (groups) trained in a step")
    group_size: Count = Field(description="Samples of a prompt")
    dataset_prompts: Count = Field(default=100_000, description="Prompts in an epoch")
    prompt_tokens: TokensLaw = Field(description="Length of a prompt")
    response_tokens: TokensLaw = Field(description="Length of a response, a turn")
    classes: dict[Name, RequestClassConfig] = Field(
        default={}, description="Classes of prompts by name; none: all alike"
    )
    intra_group_correlation: float = Field(default=0.0, ge=0, lt=1, description="Of the normal scores of one group")
    drift: Drift = Field(default=Drift(), description="Growth of the length with the version")
    turns: TurnsConfig | None = Field(default=None, description="None: one turn")
    reward: Reward | None = Field(default=None, description="None: scored in no time")
    mismatch: Mismatch | None = Field(default=None, description="None: effective sample sizes are not reported")


class PolicyConfig(Section):
    """The scheduling policy: a preset and its parameters, or parts, one a choice."""

    model_config = ConfigDict(extra="allow")

    preset: Name | None = Field(default=None, description="Named composition; other keys are its parameters")
    parts: dict[str, Any] | None = Field(default=None, description="Parts by choice (admission, batching, ...)")

    @property
    def fields(self) -> dict[str, Any]:
        """The parameters beside ``preset`` and ``parts``, as written."""
        return dict(self.model_extra or {})

    def contradictions(self) -> Iterator[ParameterError]:
        """Neither a preset nor parts."""
        if self.preset is None and self.parts is None:
            yield ParameterError("preset", None, "the name of a preset, or parts")


class RunConfig(Section):
    """How long and how often."""

    steps: Count = Field(description="Training steps to simulate, warm-up included")
    warmup_steps: int = Field(default=1, ge=0, description="Steps left out of every mean")
    replications: Count = Field(default=3, description="Runs with seeds of their own")
    confidence: float = Field(default=0.95, gt=0, lt=1, description="Of the intervals over replications")
    max_simulated_seconds: Positive | None = Field(default=None, description="Stop there; None: no limit")
    budget: SearchBudget | None = Field(
        default=None, description="What a run may use up; None: as much as its steps take"
    )

    def contradictions(self) -> Iterator[ParameterError]:
        """A warm-up that leaves no step to measure."""
        if self.warmup_steps >= self.steps:
            yield ParameterError("steps", self.steps, f"a whole number, above warmup_steps ({self.warmup_steps})")


class Sensitivity(Section):
    """An input that had to be assumed, and other values it could have."""

    key: Name = Field(description="Key path of a number in this scenario")
    values: tuple[float, ...] = Field(min_length=1, strict=False, description="Other values to try")
    reason: Name = Field(description="Why it had to be assumed")


class PointConfig(Section):
    """One set of conditions of a headline's sweep."""

    label: Name = Field(description="Conditions in short")
    settings: dict[str, Any] = Field(
        default={}, description="Key paths and their values; arms.NAME.key.path is for that arm alone"
    )


class Slo(Section):
    """Service level objectives: what a request must meet to count as goodput."""

    ttft_seconds: Positive = Field(description="Most from submission to the first token")
    tpot_seconds: Positive = Field(description="Most per token after the first, on average over a response")


ToTarget = Literal["rollouts_to_target", "tokens_to_target", "seconds_to_target"]
"""What it takes to reach a success rate: an estimate of the learning model."""
Measure = (
    Literal["step", "throughput", "rollout", "collection", "latency_mean", "latency_median", "latency_p99", "goodput"]
    | Literal["generation", "success"]
    | ToTarget
)


class Headline(Section):
    """A published ratio of two arms, and the conditions over which it is looked for."""

    system: Name = Field(description="Name of the system")
    source: Name = Field(description="Citation")
    claim: Name = Field(description="What the source says, in short")
    ratios: tuple[Positive, Positive] = Field(strict=False, description="Lowest and highest ratio claimed")
    measure: Measure = Field(
        description="Ratio of step times or of the part in which replicas work (generation), of trained tokens a "
        "second, a generating second or one that a synchronous "
        "trainer waits for them (collection), of latencies, of goodput, of success after as many rollouts, or of what "
        "it takes to reach a success"
    )
    also: Measure | None = Field(default=None, description="Another ratio to show beside it")
    target_share: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Success to reach, as a share of the way to learning.curve.asymptote",
    )
    slo: Slo | None = Field(default=None, description="Objectives of goodput")
    baseline: Name = Field(description="Arm in the denominator of the speed-up")
    improved: Name = Field(description="Arm of the system")
    assumed: tuple[Name, ...] = Field(strict=False, description="Conditions that the source leaves open")
    points: tuple[PointConfig, ...] = Field(min_length=1, strict=False, description="Conditions to sweep")

    def contradictions(self) -> Iterator[ParameterError]:
        """Goodput without objectives, or the other way round."""
        if (self.slo is None) == (self.measure == "goodput"):
            allowed = "ttft_seconds and tpot_seconds" if self.slo is None else f"nothing with measure: {self.measure}"
            yield ParameterError("slo", self.slo, allowed)
        if (self.target_share is None) != (not {self.measure, self.also} & set(get_args(ToTarget))):
            allowed = "a share" if self.target_share is None else "nothing: no measure is to a target"
            yield ParameterError("target_share", self.target_share, allowed)


class ContentionConfig(Section):
    """How much engines and trainer slow each other down: hosts, links or GPUs that both use. 1: not at all."""

    step_factor_while_training: float = Field(
        default=1.0,
        ge=1,
        description="An engine step that begins while the trainer computes takes so many times as long",
    )
    training_factor_while_generating: float = Field(
        default=1.0, ge=1, description="A training phase that begins while an engine runs takes so many times as long"
    )


class Scenario(Section):
    """One cluster, model, workload, policy and run, with arms applied."""

    name: Name = Field(description="Title of the results")
    description: str = Field(default="", description="What it asks")
    seed: int = Field(default=0, ge=0, description="Of all random streams")
    model: Name = Field(description="Model by catalogue name, or a config.json beside the file that names it")
    cluster: Cluster
    rollout: Rollout
    trainer: TrainerConfig
    sync: SyncConfig = SyncConfig()
    switching: SwitchingConfig | None = None
    contention: ContentionConfig = ContentionConfig()
    workload: WorkloadConfig
    policy: PolicyConfig
    run: RunConfig
    live: Live = Field(default=Live(), description="What a live run needs; a simulated one does not read it")
    learning: Learning | None = Field(default=None, description="What batches are worth; None: no rewards")
    published: tuple[Published, ...] = Field(default=(), strict=False, description="Measured numbers to compare with")
    sensitivity: tuple[Sensitivity, ...] | None = Field(
        default=None,
        strict=False,
        description="Assumed inputs to vary; the place of a fixed overhead is varied too, unless the list is empty",
    )
    headline: Headline | None = Field(default=None, description="A published speed-up to bracket")
    framework: Name | None = Field(default=None, description="The training framework that ran it, for reports")
    entry: PublishedEntry | None = Field(
        default=None, description="The published source that this file holds predictions to"
    )
    search: Search | None = Field(default=None, description="What `rlsim plan` may choose from")
    case: Case | None = Field(default=None, description="A user's observation that the run is to explain")

    def contradictions(self) -> Iterator[ParameterError]:
        """More GPUs used than there are, and more updates than samples."""
        for role, gpus in (("rollout", self.rollout.gpus), ("trainer", self.trainer.gpus)):
            if gpus > self.cluster.gpus:
                yield ParameterError(f"{role}.gpus", gpus, f"at most cluster.gpus ({self.cluster.gpus})")
        samples = self.workload.prompts_per_step * self.workload.group_size
        if self.trainer.updates_per_step > samples:
            updates = self.trainer.updates_per_step
            yield ParameterError("trainer.updates_per_step", updates, f"at most the samples of a step ({samples})")
