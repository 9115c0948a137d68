"""Which configurations of the tables there are to make profiles of: names, versions and the list of the catalogue."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rlsim.core.errors import ParameterError, unknown
from rlsim.costs import catalogue

SYSTEMS = {
    "A100-SXM-80GB": "a100_sxm",
    "H100-SXM": "h100_sxm",
    "H200-SXM": "h200_sxm",
    "B200": "b200_sxm",
    "L40S": "l40s",
}
"""Names that the tables have for devices of our catalogue."""

BUNDLED = {
    "Llama-3.1-8B": "meta-llama/Meta-Llama-3.1-8B",
    "Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "Qwen3-0.6B": "Qwen/Qwen3-0.6B",
    "Qwen3-1.7B": "Qwen/Qwen3-1.7B",
    "Qwen3-8B": "Qwen/Qwen3-8B",
    "Qwen3-32B": "Qwen/Qwen3-32B",
    "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
    "Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B",
    "DeepSeek-V3": "deepseek-ai/DeepSeek-V3",
}
"""Models of our catalogue whose configuration the tables bring along; others get one written from our catalogue."""

VERSIONS = {("vllm", "a100_sxm"): "0.14.0", ("vllm", ""): "0.24.0", ("sglang", ""): "0.5.14"}
"""Versions of the engines that aiconfigurator-core 0.12.0 has kernels of; ``""``: all other systems."""

COLUMNS = ("model", "device", "tensor_parallel", "expert_parallel", "backend")


@dataclass(frozen=True, slots=True)
class TableCase:
    """One configuration of the tables. Raises ``ParameterError`` for a device that they do not have."""

    model: str
    """A name of our catalogue, or a folder with a ``config.json``."""
    device: str
    """A name of our catalogue."""
    tensor_parallel: int = 1
    expert_parallel: int = 1
    backend: str = "vllm"
    version: str = ""
    """Version of the backend; empty: the one that the tables have for this device."""

    def __post_init__(self) -> None:
        if self.device not in SYSTEMS:
            raise unknown("device", self.device, SYSTEMS)
        if self.expert_parallel < 1 or self.tensor_parallel % self.expert_parallel:
            raise ParameterError("ep", self.expert_parallel, f"a divisor of tp ({self.tensor_parallel})")

    @property
    def system(self) -> str:
        """The device's name in the tables."""
        return SYSTEMS[self.device]

    @property
    def backend_version(self) -> str:
        """The version whose kernels are asked for."""
        known_version = VERSIONS.get((self.backend, self.system)) or VERSIONS.get((self.backend, ""))
        if not self.version and known_version is None:
            raise ParameterError("backend_version", self.version, f"the version of {self.backend} in the tables")
        return self.version or str(known_version)

    @property
    def model_name(self) -> str:
        """Name in the catalogue, or of the folder."""
        return Path(self.model).name

    @property
    def name(self) -> str:
        """``qwen3-32b_h100-sxm_tp2``, with ``_ep8`` behind it where experts are spread over 8 GPUs."""
        experts = f"_ep{self.expert_parallel}" if self.expert_parallel > 1 else ""
        return f"{self.model_name}_{self.device}_tp{self.tensor_parallel}{experts}".lower()

    @property
    def command(self) -> str:
        """What makes the profile again."""
        experts = f" --ep {self.expert_parallel}" if self.expert_parallel > 1 else ""
        sharding = f"--tp {self.tensor_parallel}{experts}"
        engine = f"--backend {self.backend} --backend-version {self.backend_version}"
        return f"rlsim calibrate tables --model {self.model} --device {self.device} {sharding} {engine}"

    @property
    def sharding(self) -> dict[str, int]:
        """Keywords of the tables: experts are spread over groups, and each is cut over the GPUs of its group."""
        width = self.tensor_parallel // self.expert_parallel
        return {"tp_size": self.tensor_parallel, "moe_tp_size": width, "moe_ep_size": self.expert_parallel}

    @contextmanager
    def model_id(self) -> Iterator[str]:
        """What the tables know the model by: a bundled name, or a folder with a ``config.json``; no network is used."""
        if Path(self.model).is_dir():
            yield self.model
        elif self.model_name in BUNDLED:
            yield BUNDLED[self.model_name]
        else:
            with TemporaryDirectory() as folder:
                text = json.dumps(hf_config(self.model))
                (Path(folder) / "config.json").write_text(text, encoding="utf-8")
                yield folder


def spelled_case(
    model: str, device: str, tensor_parallel: int, expert_parallel: int = 1, backend: str = "vllm", version: str = ""
) -> TableCase:
    """A case by names as users write them: case and ``organisation/`` do not matter; a folder is taken as it is."""
    name = model if Path(model).is_dir() else catalogue.model(model).name
    known = catalogue.device(device, "device").name
    return TableCase(name, known, tensor_parallel, expert_parallel, backend, version)


def hf_config(model: str) -> dict[str, object]:
    """A ``config.json`` of a dense model of our catalogue, as far as the tables read it."""
    shape = catalogue.model(model)
    if shape.experts is not None or shape.latent is not None or shape.linear is not None:
        raise ParameterError("model", model, f"a dense model, {', '.join(BUNDLED)} or a folder with a config.json")
    family = "Qwen2" if shape.qkv_bias else "Qwen3"
    return {
        "architectures": [f"{family}ForCausalLM"],
        "model_type": family.lower(),
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied_embeddings,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    }


def read_cases(file: Path) -> list[TableCase]:
    """The cases of a list with the columns :data:`COLUMNS`; faults name the line."""
    with file.open(newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise ParameterError("cases", f"{file}: {rows.fieldnames}", f"the columns {', '.join(COLUMNS)}")
        cases = []
        for row in rows:
            try:
                sizes = int(row["tensor_parallel"]), int(row["expert_parallel"])
                cases.append(TableCase(row["model"], row["device"], *sizes, row["backend"]))
            except (TypeError, ValueError) as error:
                value = f"{file}:{rows.line_num}: {error}"
                raise ParameterError("cases", value, "a model, a device, two sizes and a backend") from error
        return cases
