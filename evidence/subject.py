"""The program as its users meet it. Every import of its modules is here, so that one file follows their moves."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import rlsim
from rlsim.cli.main import app, main
from rlsim.core.errors import RlsimError
from rlsim.costs.profile import list_profiles, load_profile
from rlsim.frameworks.catalogue import part_texts, preset_texts
from rlsim.policies.registry import CHOICES, parts_of
from rlsim.presets import load_preset, preset_names
from rlsim.resolve import resolve
from rlsim.results.metrics import metrics
from rlsim.results.store import write_decisions
from rlsim.studies.live import run_arm
from rlsim.studies.text.policies import shown_in_full

ROOT = Path(__file__).parents[1]
SMALL = ROOT / "evidence" / "small.yaml"
Refusal = RlsimError
"""What the program raises for what it cannot do."""


def presets() -> tuple[str, ...]:
    """The names of all presets."""
    return tuple(preset_names())


def needs_of(preset: str) -> dict[str, Any]:
    """The key paths that a scenario must set for a preset, with values."""
    return dict(load_preset(preset).needs)


def parts() -> dict[str, tuple[str, ...]]:
    """The names of the registered parts by choice."""
    return {choice: tuple(parts_of(choice)) for choice in CHOICES}


def profiles() -> list[str]:
    """The names of the shipped profiles."""
    return list_profiles()


def commands() -> Any:
    """The command line as a tree of commands."""
    from typer.main import get_command

    return get_command(app)


def planned(policy: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    """The plan of a policy on the small cluster; raises ``Refusal``."""
    return rlsim.variants(SMALL, {"small": {**settings, "policy": policy}})["small"]


def decisions(run: Any) -> str:
    """The decisions of a run as they are saved, one JSON value a line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.jsonl"
        write_decisions(path, run.log.decisions)
        return path.read_text(encoding="utf-8")


def measured(run: Any) -> dict[str, Any]:
    """The metrics of a run."""
    return metrics(run).as_dict()


def tables(run: Any) -> dict[str, Any]:
    """The tables of a run as text, by name."""
    return {name: table.to_csv(index=False) for name, table in rlsim.tables(run).items()}


def descriptions() -> dict[str, dict[str, str]]:
    """What ``rlsim policies show`` says of every preset and of every part, by ``CHOICE.NAME``."""
    return {
        "presets": {found.name: shown_in_full([found]) for found in preset_texts()},
        "parts": {f"{found.choice}.{found.name}": shown_in_full([found]) for found in part_texts()},
    }


def lived(made: Any) -> Any:
    """A live run of fake engines; raises ``Refusal`` for what no live run can do."""
    told = run_arm("small", made, "fake")
    if told.fault is not None:
        raise told.fault
    return told.run.run


def arms(file: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The scenarios of every arm of a file; raises ``Refusal``."""
    return {str(arm): found for arm, found in rlsim.load(file, settings).resolve_all().items()}


def simulated(made: Any) -> Any:
    """The simulated run of a plan; raises ``Refusal``."""
    return rlsim.simulate(made)


def plan_of(scenario: Any) -> Any:
    """The plan of a scenario; raises ``Refusal``."""
    return resolve(scenario)


def resolved(scenario: Any) -> dict[str, Any]:
    """A scenario as it was understood, defaults and all."""
    return dict(scenario.model_dump(mode="json"))


def step_times(profile: str, batches: Iterable[tuple[int, int, int, int]]) -> list[int]:
    """The ticks of engine steps of (decodes, context tokens of each, prefill chunks, tokens of each)."""
    law = load_profile(profile).law.quantise(2048, 256)
    times = []
    for decodes, context, chunks, tokens in batches:
        pairs = chunks * tokens * (tokens + 1) // 2
        whole = decodes * context, chunks, chunks * tokens, pairs
        times.append(law.mixed(decodes, *whole) if chunks else law.decode(decodes, decodes * context))
    return times


def command(*words: str) -> dict[str, Any]:
    """What a command of rlsim, or of ``evidence``, prints, and its exit code, run from the root of the project."""
    from evidence.__main__ import main as evidence_main

    out, err, code = io.StringIO(), io.StringIO(), 0
    environment = {"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"}
    before, arguments = dict(os.environ), sys.argv
    os.environ.update(environment)
    program, run = ("evidence", evidence_main) if words[0] == "evidence" else ("rlsim", main)
    sys.argv = [program, *words[words[0] == "evidence" :]]
    try:
        with contextlib.chdir(ROOT), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv = arguments
        os.environ.clear()
        os.environ.update(before)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def canonical(value: Any) -> str:
    """A value as text: mappings in the order of their keys, floats to their last digit.

    Paths here, modules and keys of runs, which hash the code, are left out.
    """
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=repr)
    text = re.sub(r"\b[0-9a-f]{32}\b", "KEY", text.replace(f"{ROOT}{os.sep}", ""))
    return re.sub(r"\brlsim(\.\w+)+", "MODULE", text)
