"""The model that engines and trainer of a live run share: a folder with weights, made where there are none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rlsim.core.errors import ParameterError
from rlsim.live.tasks.verifiable import Verifiable
from rlsim.live.torch.small_llama import LlamaShape, write_model
from rlsim.live.torch.supervised import supervise
from rlsim.live.vllm.setup import Device
from rlsim.scenario.schema import Scenario


@dataclass(frozen=True, slots=True)
class Model:
    """A folder that transformers and vLLM load, and how many token ids it knows."""

    folder: Path
    vocabulary: int


def device_of() -> Device:
    """What live engines and trainers run on here."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def model_of(scenario: Scenario, work: Path, task: Verifiable | None) -> Model:
    """The scenario's model, or a small one made for its task; random weights go to ``work`` and nowhere else.

    Raises ``ParameterError`` at ``live.model`` where the scenario's model is only a name, and where its vocabulary is
    too small for the task; at ``live.supervised_steps`` where weights are teacher.
    """
    model, steps = _base_model(scenario, work, task), scenario.live.supervised_steps
    if task is not None and steps:
        if not model.folder.is_relative_to(work):
            raise ParameterError("live.supervised_steps", steps, "0: weights are in the folder of live.model")
        supervise(model.folder, task, steps)
    return model


def teacher_of(scenario: Scenario, work: Path, task: Verifiable | None, student: Model) -> Path | None:
    """The folder of the model that judges, made in ``work`` where it is the task's small one; None: nobody judges.

    Raises ``ParameterError`` at ``live.teacher.model`` for a folder without a model, or with another vocabulary.
    """
    teacher = scenario.live.teacher
    if teacher is None:
        return None
    if teacher.model is None:
        assert task is not None, "the schema lets supervised steps be of a task alone"
        folder = write_model(LlamaShape(task.vocabulary.size), work / "teacher")
        supervise(folder, task, teacher.supervised_steps)
        return folder
    folder = Path(teacher.model)
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise ParameterError("live.teacher.model", teacher.model, "a folder with a config.json and weights")
    vocabulary = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("vocab_size")
    if vocabulary != student.vocabulary:
        allowed = f"a model of {student.vocabulary} token ids, as the one that is taught"
        raise ParameterError("live.teacher.model", f"{teacher.model}, of {vocabulary}", allowed)
    return folder


def _base_model(scenario: Scenario, work: Path, task: Verifiable | None) -> Model:
    named = scenario.live.model or scenario.model
    folder = Path(named).parent if named.endswith(".json") else Path(named)
    if task is not None and scenario.live.model is None:
        return Model(write_model(LlamaShape(task.vocabulary.size), work / "model"), task.vocabulary.size)
    if not (folder / "config.json").is_file():
        raise ParameterError("live.model", named, "a folder with a config.json: a live run needs the model itself")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    vocabulary = int(config.get("vocab_size", 0))
    if task is not None and vocabulary < task.vocabulary.size:
        raise ParameterError("live.model", named, f"a model of at least {task.vocabulary.size} token ids, for the task")
    if not any(folder.glob("*.safetensors")):
        folder = write_model(LlamaShape.of_config(config, named), work / "model")
    return Model(folder, vocabulary)
