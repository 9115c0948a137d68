"""What each framework calls the quantities that are fitted, and what a name does not mean.

Sources: the frameworks' own code, as docs/concepts/metrics.md names them. A quantity has the names that a framework
gave it over time; the first that a log has is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlsim.core.errors import ParameterError

QUANTITIES = {
    "step": "seconds of a training step",
    "generation": "seconds in which responses are generated, and nothing is trained",
    "wait": "seconds in which the trainer waits for samples",
    "old_log_prob": "seconds of the log-probability passes",
    "reference": "seconds of the reference model's pass",
    "update_actor": "seconds of forward, backward and optimizer",
    "sync": "seconds of a publication of weights",
    "reward": "seconds of scoring a step's responses, after their generation",
    "response_mean": "mean response tokens",
    "response_max": "longest response of the step, tokens",
    "response_std": "standard deviation of response tokens",
    "clipped": "share of responses that the cap cut",
    "prompt_mean": "mean prompt tokens",
    "total_mean": "mean tokens of prompt and response",
    "total_max": "longest prompt and response, tokens",
    "tokens": "tokens of the step, prompts included (checks the batch)",
    "total_rate": "tokens a second, over the step (checks the batch)",
    "cumulative_tokens": "tokens since the start (checks the batch)",
    "pauses": "seconds of evaluation and checkpoints inside the step",
}
"""What a log may hold, by our names."""


@dataclass(frozen=True, slots=True)
class FrameworkLog:
    """One framework's log."""

    name: str
    columns: Mapping[str, tuple[str, ...]]
    """Names by quantity."""
    summed: frozenset[str] = frozenset()
    """Quantities that are the sum of all their names, not the first of them."""
    asynchronous_marks: tuple[str, ...] = ()
    """Beginnings of names that only its asynchronous modes log."""
    generation_waits: bool = False
    """In asynchronous modes what is read as generation is the trainer's waiting."""
    step_may_be_sum: bool = False
    """The step may be logged as a sum of timers."""
    traps: tuple[str, ...] = ()
    """What is printed with every fit to its logs."""
    fewest_columns: int = 3
    """Columns from which a log is taken for its."""

    def matches(self, names: set[str]) -> int:
        """How many of a log's columns it knows."""
        return sum(name in names for known in self.columns.values() for name in known)


VERL = FrameworkLog(
    "verl",
    {
        "step": ("timing_s/step", "perf/time_per_step"),
        "generation": ("timing_s/gen",),
        "wait": ("timing_s/wait_prev_gen",),
        "old_log_prob": ("timing_s/old_log_prob",),
        "reference": ("timing_s/ref",),
        "update_actor": ("timing_s/update_actor",),
        "sync": ("timing_s/update_weights", "timing_s/param_sync", "timing_s/sync_rollout_weights"),
        "reward": ("timing_s/reward",),
        "response_mean": ("response_length/mean",),
        "response_max": ("response_length/max",),
        "clipped": ("response_length/clip_ratio",),
        "prompt_mean": ("prompt_length/mean",),
        "tokens": ("perf/total_num_tokens",),
        "pauses": ("timing_s/testing", "timing_s/save_checkpoint"),
    },
    summed=frozenset({"pauses"}),
    asynchronous_marks=("fully_async/", "timing_s/wait_prev_gen", "timing_s/param_sync", "dynamic_resource/"),
    generation_waits=True,
    traps=(
        "timing_s/gen of an asynchronous mode is the trainer's waiting, not generation",
        "a rollout that was replayed from a file (skip.rollout) costs no generation: such steps are refused",
    ),
)

AREAL = FrameworkLog(
    "AReaL",
    {
        "generation": ("timeperf/rollout",),
        "old_log_prob": ("timeperf/recompute_logp",),
        "reference": ("timeperf/ref_logp",),
        "update_actor": ("timeperf/train_step",),
        "sync": ("timeperf/update_weights",),
        "total_mean": ("ppo_actor/seq_len/avg",),
        "total_max": ("ppo_actor/seq_len/max",),
        "prompt_mean": ("ppo_actor/prompt_len/avg",),
        "pauses": ("timeperf/eval", "timeperf/save", "timeperf/checkpoint_for_recover"),
    },
    summed=frozenset({"pauses"}),
    asynchronous_marks=("version_stats/",),
    generation_waits=True,
    traps=(
        "timeperf/rollout of an asynchronous run is the trainer's waiting",
        "no_eos_ratios counts the longest sequence of every padded batch as cut: it is not used",
        "it logs no time of a step: the sum of its timers stands for it",
    ),
)

SLIME = FrameworkLog(
    "slime",
    {
        "step": ("perf/step_time",),
        "generation": ("perf/rollout_time",),
        "wait": ("perf/train_wait_time",),
        "old_log_prob": ("perf/log_probs_time",),
        "reference": ("perf/ref_log_probs_time",),
        "update_actor": ("perf/actor_train_time",),
        "sync": ("perf/update_weights_time",),
        "response_mean": ("rollout/response_len/mean", "rollout/response_lengths"),
        "response_max": ("rollout/response_len/max",),
        "clipped": ("rollout/truncated_ratio",),
        "total_mean": ("rollout/total_lengths",),
    },
    traps=(
        "perf/longest_sample_tokens_per_sec is the longest response over the whole rollout, no decode speed: not used",
        "perf/train_wait_time holds generation and publication in a synchronous run",
    ),
)

ROLL = FrameworkLog(
    "ROLL",
    {
        "step": ("time/step_total",),
        "generation": ("time/step_generate", "time/step_rollout"),
        "wait": ("time/get_batch_cost_train",),
        "old_log_prob": ("time/old_log_probs", "time/step_old_log_probs_values"),
        "reference": ("time/ref_log_probs_values", "time/step_ref_log_probs_values_reward"),
        "update_actor": ("time/step_train",),
        "sync": ("time/step_model_update",),
        "response_mean": ("tokens/response_length/mean", "token/response_length/mean"),
        "response_max": ("tokens/response_length/max", "token/response_length/max"),
        "prompt_mean": ("tokens/prompt_length/mean", "token/prompt_length/mean"),
    },
    asynchronous_marks=("time/get_batch_cost_train", "scheduler/off_policy_ratio"),
    traps=("time/step_total of the RLVR pipelines is that of the step before",),
)

PRIME_RL = FrameworkLog(
    "prime-rl",
    {
        "step": ("orchestrator/Time",),
        "total_mean": ("orchestrator/Seq. Length",),
        "total_rate": ("orchestrator/Throughput",),
        "clipped": ("orchestrator/Truncation",),
    },
    asynchronous_marks=("orchestrator/",),
    fewest_columns=1,
    traps=(
        "trainer and orchestrator each print a Time: the orchestrator's is used, as it has the lengths",
        "the trainer's Throughput and MFU are over steps with their waiting: no cost of training is in them",
        "lines without Time: round steps down to seconds from a minute on, and have no lengths: W&B's history has both",
    ),
)

PRIME_RL_WANDB = FrameworkLog(
    "prime-rl (W&B)",
    {
        "step": ("time/step",),
        "wait": ("time/wait_for_batch",),
        "update_actor": ("time/forward_backward",),
        "sync": ("time/broadcast_weights",),
        "total_mean": ("seq_len/all/mean", "seq_len/mean"),
        "total_max": ("seq_len/all/max", "seq_len/max"),
        "pauses": ("time/save_ckpt",),
    },
    summed=frozenset({"pauses"}),
    asynchronous_marks=("time/", "off_policy/"),
    traps=("trainer and orchestrator both log time/step, each to a run of its own: this must be the trainer's export",),
)

OPENRLHF = FrameworkLog(
    "OpenRLHF",
    {
        "step": ("timing/step_total", "train/timing/step_total"),
        "generation": ("timing/generation", "train/timing/generation"),
        "old_log_prob": ("timing/make_experience", "train/timing/make_experience"),
        "update_actor": ("timing/ppo_train", "train/timing/ppo_train"),
        "sync": ("timing/broadcast", "train/timing/broadcast"),
        "response_mean": (
            "rollout/response_length_mean",
            "train/rollout/response_length_mean",
            "response_length",
            "train/response_length",
        ),
        "total_mean": ("total_length", "train/total_length"),
        "clipped": ("rollout/truncated_rate", "train/rollout/truncated_rate", "truncated", "train/truncated"),
    },
    step_may_be_sum=True,
    traps=("timing/step_total is a sum of timers in the synchronous trainer, the wall clock in the asynchronous one",),
)

TRL = FrameworkLog(
    "TRL",
    {
        "step": ("step_time", "train/step_time", "progress_bar/step_time"),
        "update_actor": ("forward_time_s", "train/forward_time_s"),
        "sync": ("weight_sync_time_s", "train/weight_sync_time_s"),
        "response_mean": (
            "completions/mean_length",
            "train/completions/mean_length",
            "completion_length",
            "train/completion_length",
        ),
        "response_max": ("completions/max_length", "train/completions/max_length"),
        "clipped": ("completions/clipped_ratio", "train/completions/clipped_ratio"),
        "cumulative_tokens": ("num_tokens", "train/num_tokens"),
    },
    asynchronous_marks=("queue_wait_time_s", "weight_sync_time_s", "train/queue_wait_time_s"),
    traps=(
        "queue_wait_time_s is the mean wait for one sample, not for a step's: it is not used",
        "progress_bar/step_time is in whole seconds, with evaluations and checkpoints (releases without step_time)",
    ),
    fewest_columns=2,
)

NEMO_RL = FrameworkLog(
    "NeMo-RL",
    {
        "step": ("timing/train/total_step_time",),
        "generation": ("timing/train/generation",),
        "wait": ("timing/train/exposed_generation",),
        "old_log_prob": ("timing/train/policy_and_reference_logprobs",),
        "update_actor": ("timing/train/policy_training",),
        "sync": ("timing/train/weight_sync", "timing/train/prepare_for_generation/transfer_and_update_weights"),
        "reward": ("timing/train/reward_calculation",),
        "response_mean": ("train/mean_gen_tokens_per_sample",),
        "response_max": ("train/max_gen_tokens_per_sample",),
        "prompt_mean": ("train/mean_prompt_length",),
        "total_mean": ("train/mean_total_tokens_per_sample",),
        "clipped": ("train/truncation_rate",),
        "pauses": ("timing/train/checkpointing", "timing/validation/total_validation_time"),
    },
    summed=frozenset({"pauses"}),
    asynchronous_marks=("timing/train/exposed_generation", "train/avg_trajectory_age"),
    traps=("policy_and_reference_logprobs holds both passes: the scenario says whether there is a reference model",),
)

SKYRL = FrameworkLog(
    "SkyRL",
    {
        "step": ("timing/step",),
        "generation": ("timing/generate",),
        "wait": ("timing/wait_for_generation_buffer",),
        "old_log_prob": ("timing/fwd_logprobs_values_reward",),
        "update_actor": ("timing/train_critic_and_policy", "timing/run_training"),
        "sync": ("timing/sync_weights",),
        "response_mean": ("generate/avg_num_tokens",),
        "response_max": ("generate/max_num_tokens",),
        "response_std": ("generate/std_num_tokens",),
    },
    asynchronous_marks=("timing/wait_for_generation_buffer", "async/"),
)

RLINF = FrameworkLog(
    "RLinf",
    {
        "step": ("time/step",),
        "generation": ("time/rollout",),
        "old_log_prob": ("time/actor/inference",),
        "update_actor": ("time/actor/training",),
        "sync": ("time/sync_weights",),
        "response_mean": ("rollout/response_length",),
        "response_max": ("rollout/max_of_response_length", "rollout/max_response_length"),
        "prompt_mean": ("rollout/prompt_length",),
        "total_mean": ("rollout/total_length",),
        "total_max": ("rollout/max_total_length",),
    },
    traps=("scoring and log-probability passes may overlap generation: their timers may sum to more than the step",),
)

OPEN_INSTRUCT = FrameworkLog(
    "open-instruct",
    {
        "step": ("time/total",),
        "wait": ("time/trainer_waiting_for_data", "time/trainer_idle_waiting_for_inference"),
        "update_actor": ("time/training",),
        "sync": ("time/weight_sync",),
        "response_mean": ("val/sequence_lengths",),
        "response_max": ("val/sequence_lengths_max",),
        "tokens": ("val/num_step_tokens",),
        "pauses": ("time/saving",),
    },
    summed=frozenset({"pauses"}),
    asynchronous_marks=("time/trainer_waiting_for_data", "time/generation_waiting_for_trainer"),
    traps=("time/group_generation_max is the slowest prompt's, begun up to async_steps earlier: it is not used",),
)

FRAMEWORKS = (
    VERL,
    AREAL,
    SLIME,
    ROLL,
    PRIME_RL,
    PRIME_RL_WANDB,
    OPENRLHF,
    TRL,
    NEMO_RL,
    SKYRL,
    RLINF,
    OPEN_INSTRUCT,
)


def framework_of(names: set[str], origin: str) -> FrameworkLog:
    """The framework that knows most of a log's columns; ``ParameterError`` when none knows enough of them."""
    best = max(FRAMEWORKS, key=lambda framework: framework.matches(names))
    if best.matches(names) < best.fewest_columns:
        known = "; ".join(f"{one.name}: {next(iter(one.columns.values()))[0]}, ..." for one in FRAMEWORKS)
        raise ParameterError(origin, sorted(names)[:12], f"the metrics of a framework that is known ({known})")
    return best


def as_markdown() -> str:
    """A table in Markdown: what is read of each framework's log, and from which columns."""
    lines = ["| framework | quantity | columns, the first that is there |", "|---|---|---|"]
    for framework in FRAMEWORKS:
        for quantity, names in framework.columns.items():
            shown = (" + " if quantity in framework.summed else ", ").join(f"`{name}`" for name in names)
            lines.append(f"| {framework.name} | {QUANTITIES[quantity]} | {shown} |")
    return "\n".join(lines) + "\n"
