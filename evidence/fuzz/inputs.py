"""Eight kinds of input: whole examples of each, and the commands that read them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

import rlsim
from evidence.fuzz.server import URL
from evidence.fuzz.settings import SETTINGS
from evidence.fuzz.trial import run_alone

SEEDS = Path(__file__).parent / "seeds"
SHIPPED = Path(rlsim.__file__).parent / "costs" / "data" / "profiles"
TEXT = "{text}"
"""In a command: the damaged bytes themselves."""


@dataclass(frozen=True, slots=True)
class Example:
    """A whole folder that commands accept, and what may be damaged in it."""

    folder: Path
    damaged: tuple[str, ...]
    """Files of it, any of which is damaged."""
    commands: tuple[tuple[str, ...], ...]
    """Given in the folder, one drawn a trial."""
    texts: tuple[str, ...] = ()
    """Where nothing in the folder is damaged: values of an argument, one of which is."""


@dataclass(frozen=True, slots=True)
class Input:
    """One of the eight kinds."""

    name: str
    make: Callable[[Path], list[Example]]
    """Its examples, below a folder that is there for them."""
    lines: bool = False
    """Whether refusals name the line as well."""


def _files(kind: str, folder: Path, command: Callable[[str], tuple[str, ...]], beside: str = "") -> list[Example]:
    """An example a file of the seeds; ``beside`` is a whole file that the command needs as well."""
    examples = []
    for file in sorted((SEEDS / kind).iterdir()):
        place = folder / file.stem / file.suffix.strip(".")
        place.mkdir(parents=True)
        shutil.copy(file, place)
        if beside:
            shutil.copy(SEEDS / beside, place)
        examples.append(Example(place, (file.name,), (command(file.name),)))
    return examples


def _saved(folder: Path, *command: str) -> None:
    """What a command leaves in ``out`` beside its scenario."""
    folder.mkdir(parents=True)
    shutil.copy(SEEDS / "scenario" / "arms.yaml", folder)
    trial = run_alone(folder, command, seconds=60)
    if trial.code != 0:
        raise RuntimeError(f"{' '.join(command)}: {trial.stderr}")


def _scenarios(folder: Path) -> list[Example]:
    place = folder / "set"
    place.mkdir()
    shutil.copy(SEEDS / "scenario" / "arms.yaml", place)
    setting = ("run", "arms.yaml", "--arm", "on-policy", "--workers", "1", "--json", "--set", TEXT)
    return [
        *_files("scenario", folder, lambda name: ("compare", name, "--workers", "1", "--json")),
        Example(place, (), (setting,), SETTINGS),
    ]


def _imports(folder: Path) -> list[Example]:
    def command(name: str) -> tuple[str, ...]:
        return ("import-config", name, "--from", name.split(".")[0], "--out", "made.yaml")

    return _files("imports", folder, command)


def _logs(folder: Path) -> list[Example]:
    return _files(
        "logs", folder, lambda name: ("calibrate", "logs", name, "--base", "base.yaml", "--out", "fit"), "base.yaml"
    )


RUN = "out/on-policy/replication-0"


def _compared(folder: Path) -> Path:
    place = folder / "compare"
    _saved(place, "compare", "arms.yaml", "--workers", "1", "--out", "out")
    return place


def _recordings(folder: Path) -> list[Example]:
    place = _compared(folder)
    files = [f"{RUN}/decisions.jsonl", "out/on-policy/scenario.yaml"]
    return [Example(place, tuple(files), (("replay", RUN),))]


def _results(folder: Path) -> list[Example]:
    place = _compared(folder)
    tables = tuple(str(path.relative_to(place)) for path in sorted((place / RUN).glob("*.parquet")))
    pages = ("out/comparison.json", "out/provenance.json", "out/on-policy/metrics.json", "out/on-policy/scenario.yaml")
    return [
        Example(place, tables, (("trace", RUN), ("plot", RUN))),
        Example(place, (*pages, *tables), (("report", "out"), ("report", "out/on-policy"))),
    ]


def _stores(folder: Path) -> list[Example]:
    place = folder / "sweep"
    again = ("sweep", "arms.yaml", "--set", "trainer.mfu=0.3,0.4", "--workers", "1", "--out", "out")
    _saved(place, *again)
    return [Example(place, ("out/runs/runs.sqlite3", "out/sweep.json"), (again,))]


def _profiles(folder: Path) -> list[Example]:
    place = folder / "profile"
    place.mkdir()
    shutil.copy(SHIPPED / "llama-3.1-8b_h100-sxm_tp1.json", place / "made.json")
    made = json.loads((place / "made.json").read_text(encoding="utf-8"))
    scenario = yaml.safe_load((SEEDS / "scenario" / "arms.yaml").read_text(encoding="utf-8"))
    scenario["model"], scenario["cluster"]["device"] = made["model"], made["device"]
    scenario["rollout"] = {"gpus": 2, "step_time": {"source": "profile", "profile": "made.json"}}
    (place / "run.yaml").write_text(yaml.safe_dump(scenario), encoding="utf-8")
    run = ("run", "run.yaml", "--arm", "on-policy", "--workers", "1", "--json")
    return [Example(place, ("made.json",), (("profile", "show", "made.json"), run))]


def _servers(folder: Path) -> list[Example]:
    examples = []
    for kind in sorted((SEEDS / "servers").iterdir()):
        place = folder / kind.name
        shutil.copytree(kind, place)
        examples.append(Example(place, tuple(sorted(path.name for path in kind.iterdir())), (("servers", URL),)))
    return examples


INPUTS = (
    Input("scenario", _scenarios, lines=True),
    Input("import", _imports),
    Input("log", _logs),
    Input("replay", _recordings),
    Input("results", _results),
    Input("store", _stores),
    Input("profile", _profiles),
    Input("server", _servers),
)
