"""The live section: what a live run needs beside the policy. A simulated run does not read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import ConfigDict, Field

from rlsim.core.errors import ParameterError
from rlsim.core.section import Count, Fraction, Name, Positive, Section


class LiveTask(Section):
    """A task with verifiable rewards: its name, and the parameters of that name."""

    model_config = ConfigDict(extra="allow")

    name: Name = Field(description="Name of the task")

    @property
    def fields(self) -> dict[str, Any]:
        """The parameters beside the name, as written."""
        return dict(self.model_extra or {})


class Loss(Section):
    """How the trainer learns from a batch (GRPO: arXiv 2402.03300; decoupled loss: arXiv 2505.24298)."""

    learning_rate: Positive = Field(default=1e-3, description="Of AdamW")
    clip_low: Positive = Field(default=0.2, description="Ratios below 1 - clip_low gain nothing more")
    clip_high: Positive = Field(default=0.2, description="Ratios above 1 + clip_high gain nothing more")
    correction: Literal["truncated", "none"] = Field(
        default="truncated", description="Importance weights of samples that other weights, or another engine, made"
    )
    max_importance: Positive = Field(default=2.0, description="Bound on an importance weight, with truncated")
    max_gradient_norm: Positive = Field(default=1.0, description="Gradients are scaled down to it")


class LiveTeacher(Section):
    """Who judges the tokens of samples in the place of rewards: on-policy distillation (arXiv 2306.13649)."""

    model: Name | None = Field(
        default=None,
        description="Folder of a Hugging Face model of the same vocabulary; None: a task's small model",
    )
    supervised_steps: int = Field(
        default=0, ge=0, description="Supervised steps on answers of the task that make the small model a teacher"
    )

    def contradictions(self) -> Iterator[ParameterError]:
        """A teacher from nowhere, or from two places."""
        if (self.model is None) == (self.supervised_steps == 0):
            allowed = "either a folder in model, or above 0"
            yield ParameterError("supervised_steps", self.supervised_steps, allowed)


class Live(Section):
    """What a live run needs; a simulated run does not read it."""

    model: Name | None = Field(
        default=None, description="Folder of a Hugging Face model, or a built-in shape; None: the scenario's model"
    )
    weights: Literal["auto", "dummy"] = Field(
        default="auto", description="Those of the folder, or random ones where there are none"
    )
    trainer: Literal["torch", "paced"] = Field(
        default="torch", description="A real trainer, or one that takes the modelled time and teaches nothing"
    )
    trainer_processes: Count = Field(default=1, description="Ranks of the trainer (FSDP)")
    threads: Count = Field(default=1, description="OpenMP threads of an engine or a trainer process on a CPU")
    cores: tuple[int, ...] = Field(
        default=(), strict=False, description="CPU cores to bind to: engines in order, then the trainer; none: unbound"
    )
    placement: Literal["pack", "spread", "strict-pack", "strict-spread"] = Field(
        default="pack",
        description="Of engines and trainer on the nodes of a cluster, as Ray's placement groups have it",
    )
    task: LiveTask | None = Field(default=None, description="None: lengths by the workload's laws, and no rewards")
    supervised_steps: int = Field(
        default=0,
        ge=0,
        description="Supervised steps on answers of the task before the run: random weights begin as a checkpoint that "
        "succeeds at times",
    )
    teacher: LiveTeacher | None = Field(default=None, description="None: rewards teach")
    draft_lenience: float = Field(
        default=1.0,
        ge=1,
        description="A token of a draft stands with this times the ratio of its probabilities under new and old "
        "weights (arXiv 2509.23232)",
    )
    loss: Loss = Field(default=Loss(), description="How the trainer learns")
    servers: tuple[Name, ...] = Field(
        default=(), strict=False, description="URLs of OpenAI-compatible servers, one a replica, for --live openai"
    )
    api_key_env: Name | None = Field(default=None, description="Environment variable that holds the servers' key")
    allow_remote: bool = Field(default=False, description="Accept servers on other machines")
    server_model: Name | None = Field(default=None, description="Name of the model there; None: the first one listed")
    request_timeout_seconds: Positive = Field(default=600.0, description="Without a token from a server")
    connect_timeout_seconds: Positive = Field(default=10.0, description="For a connection to a server")
    control_timeout_seconds: Positive = Field(
        default=120.0, description="For a server's answer to all but generate calls: pauses, weight updates"
    )
    abort_timeout_seconds: Positive = Field(
        default=5.0, description="For an aborted call to end; then its connection is cut"
    )
    max_connections: Count = Field(default=4096, description="Generate calls open at once on one server")
    gauge_interval_seconds: Positive | None = Field(
        default=None, description="Of reading servers' gauges; None: they are not read"
    )
    tool: Literal["paced", "calculator"] = Field(
        default="paced", description="Tools that only take the modelled time, or a sandboxed process"
    )
    tool_timeout_seconds: Positive | None = Field(default=30.0, description="Of an attempt; None: no limit")
    tool_retries: int = Field(default=1, ge=0, description="Further attempts of a tool call that failed or was late")
    reward_timeout_seconds: Positive | None = Field(default=30.0, description="Of an attempt; None: no limit")
    max_late_share: Fraction = Field(
        default=0.01, description="Share of late steps above which an emulated run does not count"
    )

    def contradictions(self) -> Iterator[ParameterError]:
        """Negative cores, and the answers of no task."""
        if self.supervised_steps and self.task is None:
            yield ParameterError("supervised_steps", self.supervised_steps, "0 without live.task: there are no answers")
        if self.teacher is not None and self.trainer == "paced":
            yield ParameterError("trainer", "paced", "torch: a teacher teaches a real trainer")
        if self.teacher is not None and self.teacher.supervised_steps and (self.task is None or self.model is not None):
            allowed = "a folder in live.teacher.model: only the small model of a task is taught answers"
            yield ParameterError("teacher.supervised_steps", self.teacher.supervised_steps, allowed)
        for core in self.cores:
            if core < 0:
                yield ParameterError("cores", core, "numbers of CPU cores, from 0")
