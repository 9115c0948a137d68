"""A file as a framework understands it: its Python calls, today's names of its keys, the files that it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rlsim.frameworks.files import Config, read_config
from rlsim.frameworks.mapping import Framework


def read_for(source: Framework, path: Path) -> Config:
    """What the file ``path`` says to the framework ``source``; raises what ``read_config`` and ``read_calls`` raise."""
    if path.suffix.lower() == ".py" and source.calls:
        from rlsim.frameworks.python_calls import read_calls

        config = read_calls(path, source.calls)
    else:
        config = read_config(path)
    _rename(source, config)
    for key in source.companions:
        if isinstance(config.flat.get(key), str):
            _add(key, _beside(path, config.flat[key]), config)
    processes = _launched(config.flat) if source.processes and source.processes not in config.flat else None
    if processes is not None:
        config.flat[source.processes] = processes
        config.notes.append(f"{source.processes} = {processes}: of torchrun, or one for each of CUDA_VISIBLE_DEVICES")
    return config


def _launched(flat: dict[str, Any]) -> int | None:
    """Processes that torchrun is told to start, or one for each GPU that the command sees; None where neither tells."""
    each, nodes = flat.get("nproc_per_node"), flat.get("nnodes", 1)
    if isinstance(each, int) and isinstance(nodes, int):
        return each * nodes
    visible = str(flat.get("(variable).CUDA_VISIBLE_DEVICES", ""))
    return len(visible.split(",")) if re.fullmatch(r"\d+(,\d+)*", visible) else None


def _rename(source: Framework, config: Config) -> None:
    """Give keys their names of today; a key that has its name already counts before one that gets it."""
    older = [key for key in source.renamed if key in config.flat]
    tables: tuple[dict[str, Any], ...] = (config.flat, config.where, config.unresolved, config.unset)
    for table in tables:
        for key in [key for key in table if source.name_of(key) != key]:
            table.setdefault(source.name_of(key), table.pop(key))
    if older:
        names = ", ".join(f"{key} is {source.renamed[key]}" for key in older)
        config.notes.append(f"names of earlier versions are read as those of today: {names}")


def _beside(path: Path, name: str) -> Path | None:
    """The YAML file ``name`` below the folder of ``path``, or below one of the two above it."""
    if Path(name).is_absolute() or ".." in Path(name).parts or not name.endswith((".yaml", ".yml")):
        return None
    candidates = (folder / name for folder in path.resolve().parents[:3])
    return next((file for file in candidates if file.is_file()), None)


def _add(key: str, path: Path | None, config: Config) -> None:
    """Put the keys of a file where the command line does not set them."""
    name = config.flat.pop(key)
    if path is None:
        config.notes.append(f"{key} = {name} is not beside {config.file}: its keys are left to their defaults")
        return
    other = read_config(path)
    config.faults += other.faults
    config.notes.append(f"{key}: the keys of {path} count where the command line does not set them")
    for mine, theirs in ((config.flat, other.flat), (config.where, other.where), (config.unresolved, other.unresolved)):
        for name, value in theirs.items():
            mine.setdefault(name, value)
