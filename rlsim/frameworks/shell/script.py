"""A launch script as configuration: the keys of the program that it starts and what the script says beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlsim.frameworks.shell.arguments import launch
from rlsim.frameworks.shell.commands import Ended
from rlsim.frameworks.shell.evaluate import Evaluation
from rlsim.frameworks.shell.state import MOST_NODES, Exhausted, State
from rlsim.frameworks.shell.unknown import cleaned, is_known, shown, to_ascii
from rlsim.frameworks.shell.words import parsed, prepared


@dataclass(frozen=True, slots=True)
class Script:
    """What a script says."""

    flat: dict[str, Any]
    """Values of the training program by key, without leading dashes."""
    unresolved: dict[str, str]
    """Keys whose value depends on the environment, and its text."""
    unset: dict[str, tuple[str, ...]]
    """Of those, the variables that the script does not set."""
    lines: dict[str, int]
    launcher: dict[str, Any]
    """Values of what starts the program: accelerate, torchrun, ray."""
    server: dict[str, Any]
    """Values of the engine that it starts beside the program: trl vllm-serve, vllm serve."""
    variables: dict[str, str]
    documents: dict[str, str]
    """Text of files that the script writes, by path."""
    sourced: list[str]
    """Scripts that it reads in."""
    programs: list[str]
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def read_script(text: str, file: str = "script", folder: Path | None = None) -> Script:
    """Follow a script without running anything; ``folder`` is where scripts that it reads in are looked for."""
    state = State(file, folder)
    try:
        source = to_ascii(prepared(_continued(cleaned(text), state)))
        Evaluation(source, state).run(parsed(source))
    except Ended:
        pass
    except (Exhausted, RecursionError):
        state.faults.append(f"{file}: found more than {MOST_NODES} statements and words; what follows is not read")
    started = launch(state.commands)
    return Script(
        flat=started.own.values,
        unresolved=started.own.unresolved,
        unset=started.own.unset,
        lines=started.own.lines,
        launcher=started.launcher.values,
        server=started.server.values,
        variables={name: shown(value) for name, value in state.variables.items() if is_known(value)},
        documents={path: shown(document) for path, document in state.documents.items()},
        sourced=state.sourced,
        programs=started.programs,
        notes=state.notes,
        faults=state.faults,
    )


def _continued(text: str, state: State) -> str:
    """The text with what ends a continued command in Bash, and was hardly meant to, left out; each is a note."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if at and line.lstrip().startswith("#") and lines[at - 1].endswith("\\"):
            lines[at] = "\\"
            state.note(at + 1, "a comment between continued lines ends the command in Bash; it is read on")
        elif (after := re.search(r"\\[ \t]+(#.*)?$", line)) is not None:
            lines[at] = line[: after.start() + 1]
            state.note(at + 1, "what follows a backslash ends the command in Bash; it is read on")
    return re.sub(r"[\s\\]+\Z", "", "\n".join(lines)) + "\n"
