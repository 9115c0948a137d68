"""What is fingerprinted: tasks by name, each of which gives fingerprints whose names begin with its own."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from evidence import subject

Fingerprints = dict[str, str]
EQUAL, DIFFERENT, REFUSED = "equal", "DIFFERENT", "refused"
BATCHES = [
    (decodes, context, chunks, tokens)
    for decodes, context, (chunks, tokens) in product(
        (0, 1, 2, 7, 64, 200), (17, 900, 30_000), ((0, 0), (1, 300), (3, 512))
    )
    if decodes + chunks
]
"""Compositions of an engine step: (decodes, context tokens of each, prefill chunks, tokens of each)."""
LIVE_BASES = ("areal",)
"""Bases under which allocation parts also run live."""


@cache
def cases() -> dict[str, Any]:
    """The cases of the data file."""
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(subject.ROOT / "evidence" / "cases.yaml")
    return found


def short_hash(value: Any) -> str:
    """A short hash of a value's canonical text."""
    return hashlib.sha256(subject.canonical(value).encode()).hexdigest()[:16]


def task_names() -> list[str]:
    """The names of all tasks, in the order of their kinds."""
    return [f"{kind}/{name}" for kind, (names, _) in KINDS.items() for name in names()]


def fingerprints_of(task: str) -> Fingerprints:
    """The fingerprints of one task by full name."""
    kind, _, name = task.partition("/")
    return {f"{task}/{what}": found for what, found in KINDS[kind][1](name).items()}


# -- presets and parts -----------------------------------------------------------------------------------


def preset(name: str) -> Fingerprints:
    """What a preset decides and measures in a small run, simulated and live."""
    policy = {"preset": name, **cases()["presets"].get(name, {})}
    needs = subject.needs_of(name)
    plain = subject.simulated(subject.planned(policy, needs))
    plan = subject.planned(policy, {**needs, **cases()["agents"]})
    run = subject.simulated(plan)
    return {
        "plain-decisions": short_hash(subject.decisions(plain)),
        **seen(run),
        "tables": short_hash(subject.tables(run)),
        **alive(plan, run),
    }


def seen(run: Any) -> Fingerprints:
    """The decisions and the metrics of a run."""
    return {"decisions": short_hash(subject.decisions(run)), "metrics": short_hash(subject.measured(run))}


def alive(plan: Any, run: Any) -> Fingerprints:
    """The decisions of a live run of fake engines, and whether they are those of the simulation."""
    try:
        decisions = subject.decisions(subject.lived(plan))
    except subject.Refusal as error:
        return {"live": refusal(error), "live-and-simulation": REFUSED}
    same = decisions == subject.decisions(run)
    return {"live": short_hash(decisions), "live-and-simulation": EQUAL if same else DIFFERENT}


def refusal(error: Exception) -> str:
    """The fingerprint of a refusal; a class that it found is not told by its name."""
    return short_hash(re.sub(r"found '_?[A-Z]\w*'", "found a class", str(error)))


def part_names(choice: str) -> Callable[[], list[str]]:
    """The registered parts of a choice, each under every base."""
    return lambda: under_bases(subject.parts()[choice])


def variant_names() -> list[str]:
    """The variants of parts, each under every base."""
    return under_bases(cases()["variants"])


def under_bases(names: Iterable[str]) -> list[str]:
    """Every name with every base."""
    return [f"{name}/{base}" for name in names for base in cases()["bases"]]


def part(choice: str) -> Callable[[str], Fingerprints]:
    """What a part decides and measures under a base, or why the two do not go together."""

    def made(name: str) -> Fingerprints:
        use, _, base = name.partition("/")
        given = cases()["parts"].get(choice, {}).get(use, {})
        return composed(choice, {**given, "part": {"use": use, **given.get("part", {})}}, base)

    return made


def variant(name: str) -> Fingerprints:
    """The same for a part with the parameters of a variant."""
    name, _, base = name.partition("/")
    given = cases()["variants"][name]
    return composed(given["choice"], given, base)


def composed(choice: str, given: Mapping[str, Any], base: str) -> Fingerprints:
    """What a base with some parts of its own decides and measures, or why it is refused."""
    chosen = {**given.get("with", {}), choice: given["part"]}
    settings = {**cases()["worlds"].get(choice, {}), **given.get("settings", {})}
    try:
        plan = subject.planned({**cases()["bases"][base], "parts": chosen}, settings)
        run = subject.simulated(plan)
    except subject.Refusal as error:
        return {REFUSED: refusal(error)}
    lives = choice == "allocation" and base in LIVE_BASES
    return {**seen(run), **(alive(plan, run) if lives else {})}


# -- files -----------------------------------------------------------------------------------------------


def scenario_names() -> list[str]:
    """The shipped scenario files, by their paths without the ending."""
    folder = subject.ROOT / "scenarios"
    return sorted(str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.yaml"))


def scenario(name: str) -> Fingerprints:
    """What the arms of a file resolve to, and what short runs of them measure; or why it is no scenario."""
    file = f"{subject.ROOT}/scenarios/{name}.yaml"
    try:
        arms = subject.arms(file, {})
    except subject.Refusal as error:
        return {REFUSED: short_hash(str(error))}
    dumps = {arm: subject.resolved(found) for arm, found in arms.items()}
    return {"resolved": short_hash(dumps), "metrics": short_hash(short_runs(file, some(dumps)))}


def some(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The first arms and the last ones, where there are many."""
    names, half = list(arms), cases()["sizes"]["arms"] // 2
    return {name: arms[name] for name in dict.fromkeys([*names[:half], *names[-half:]])}


def short_runs(file: str, arms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The metrics of a short run by arm, or why there is none."""
    shortened: dict[str, dict[str, Any]] = {}
    told: dict[str, Any] = {}
    for arm, found in arms.items():
        settings = {**cases()["short"], **smaller(found)}
        key = subject.canonical(settings)
        try:
            shortened[key] = shortened.get(key) or subject.arms(file, settings)
            told[arm] = subject.measured(subject.simulated(subject.plan_of(shortened[key][arm])))
        except subject.Refusal as error:
            told[arm] = str(error)
    return told


def smaller(scenario: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of a step in a short run of a scenario."""
    sizes, workload = cases()["sizes"], scenario["workload"]
    members = sizes["members_with_learning" if scenario["learning"] else "members"]
    return {
        "workload.prompts_per_step": min(sizes["prompts"], workload["prompts_per_step"]),
        "workload.group_size": min(members, workload["group_size"]),
    }


def profile(name: str) -> Fingerprints:
    """The step times of a shipped profile at many batches, and how it is described."""
    return {
        "steps": short_hash(subject.step_times(name, BATCHES)),
        "text": short_hash(subject.command("profile", "show", name)),
    }


# -- the command line ------------------------------------------------------------------------------------


def commands(name: str) -> Fingerprints:
    """What some commands print, and the files that they leave."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [[word.replace("FOLDER", folder) for word in flat(line)] for line in cases()["commands"][name]]
        told = {f"{number}": subject.command(*line) for number, line in enumerate(lines)}
        kept = {str(path.relative_to(folder)): kept_of(path) for path in sorted(Path(folder).rglob("*"))}
        found = {"printed": short_hash(subject.canonical(told).replace(folder, "FOLDER"))}
        return {**found, "files": short_hash(kept)} if kept else found


def flat(words: list[Any]) -> list[str]:
    """The words of a command, those of lists in it included."""
    return [part for word in words for part in (flat(word) if isinstance(word, list) else [str(word)])]


def kept_of(path: Path) -> str:
    """What is fingerprinted of a saved file: its text where that tells the run, otherwise that it is there."""
    told = path.suffix in (".json", ".jsonl", ".yaml") and path.name not in ("provenance.json", "live.json")
    return path.read_text(encoding="utf-8") if told and path.is_file() else ""


def options_names() -> list[str]:
    """All commands of the command line, subcommands after a dash."""
    return sorted(named_commands(subject.commands(), ()))


def named_commands(found: Any, path: tuple[str, ...]) -> dict[str, Any]:
    """A command and those below it by name."""
    below = getattr(found, "commands", {})
    own = {"-".join(path) or "all": found}
    return own | {key: made for name, sub in below.items() for key, made in named_commands(sub, (*path, name)).items()}


def options(name: str) -> Fingerprints:
    """The help, the arguments and the options of a command."""
    found = named_commands(subject.commands(), ())[name]
    rows = [[str(getattr(one, name, None)) for name in ("name", *TOLD)] for one in found.params]
    return {"options": short_hash([found.help, rows])}


TOLD = ("param_type_name", "opts", "secondary_opts", "required", "multiple", "nargs", "default", "min", "max", "help")
"""What is told of an argument or an option of a command."""


def texts(what: str) -> Fingerprints:
    """How the presets or the parts are described, by name."""
    return {name: short_hash(text) for name, text in subject.descriptions()[what].items()}


Kind = tuple[Callable[[], Any], Callable[[str], Fingerprints]]
KINDS: dict[str, Kind] = {
    "command": (lambda: list(cases()["commands"]), commands),
    "scenario": (scenario_names, scenario),
    "preset": (subject.presets, preset),
    **{choice: (part_names(choice), part(choice)) for choice in subject.parts()},
    "variant": (variant_names, variant),
    "profile": (subject.profiles, profile),
    "options": (options_names, options),
    "text": (lambda: ["presets", "parts"], texts),
}
"""By the first word of a task's name: what there is, and what makes its fingerprints."""
