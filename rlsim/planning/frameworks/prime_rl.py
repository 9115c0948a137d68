"""prime-rl: one TOML file. Its names move quickly; earlier ones are read as well."""

from __future__ import annotations

from rlsim.planning.frameworks.codecs import GPUS, MODEL, SAMPLES
from rlsim.planning.frameworks.mapping import Framework, Key, Mode, Row, legacy, same

_EACH = Key("deployment.gpus_per_node", 8)
_BY_NODES = (
    Row((Key("deployment.num_train_nodes"), _EACH), ("trainer.gpus",), GPUS, legacy=True),
    Row((Key("deployment.num_infer_nodes"), _EACH), ("rollout.gpus",), GPUS, legacy=True),
)

PRIME_RL = Framework(
    name="prime-rl",
    version="559b447",
    format="toml",
    rows=(
        Row((Key("model.name"),), ("model",), MODEL),
        Row(
            (Key("orchestrator.batch_size", 128), Key("orchestrator.group_size")),
            ("workload.prompts_per_step", "workload.group_size"),
            SAMPLES,
        ),
        same("orchestrator.train.sampling.max_completion_tokens", "workload.response_tokens.cap_tokens"),
        legacy("orchestrator.sampling.max_tokens", "workload.response_tokens.cap_tokens"),
        same("inference.model.max_model_len", "rollout.max_model_len"),
        legacy("orchestrator.seq_len", "rollout.max_model_len"),
        legacy("seq_len", "rollout.max_model_len"),
        same("inference.vllm.tensor_parallel_size", "rollout.tensor_parallel", 1),
        legacy("inference.parallel.tp", "rollout.tensor_parallel"),
        same("inference.vllm.gpu_memory_utilization", "rollout.gpu_memory_utilization"),
        same("inference.vllm.max_num_seqs", "rollout.max_num_seqs"),
        same("trainer.model.cp", "trainer.context_parallel", 1),
        same("trainer.model.tp", "trainer.tensor_parallel", 1),
        same("orchestrator.max_off_policy_steps", "policy.max_off_policy_steps", 8),
    ),
    modes=(
        Mode(
            "prime-rl",
            (),
            (
                *_BY_NODES,
                same("deployment.num_train_gpus", "trainer.gpus"),
                same("deployment.num_infer_gpus", "rollout.gpus"),
            ),
        ),
    ),
)
