"""Results on disk: Parquet tables, the resolved scenario, metrics and decisions; equal runs give equal bytes.

Files that are either there in full or not at all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.core.errors import ParameterError, RlsimError
from rlsim.core.log import Decision
from rlsim.executor.run import FinishedRun
from rlsim.results.metrics import Metrics, metrics_of
from rlsim.results.progress import progress_tables
from rlsim.results.replay.decisions import RecordError, from_json, to_json
from rlsim.results.tables import Digest, digest, table_columns
from rlsim.scenario.document import resolved_yaml

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name beside ``path``: write to it; it becomes ``path`` on success and is removed on failure."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


METRICS, SCENARIO, DECISIONS = "metrics.json", "scenario.yaml", "decisions.jsonl"
MAX_DECISION_BYTES = 2 * 1024**3
MAX_LINE_BYTES = 256 * 1024**2


class StoreError(RlsimError, OSError):
    """Results that cannot be written or read; the message says which file and why."""


def save(directory: str | os.PathLike[str], name: str, runs: Sequence[FinishedRun]) -> Path:
    """Write the replications of one arm to ``directory/name``, in full or not at all; returns that directory.

    ::

        scenario.yaml          the scenario as understood
        metrics.json           {"runs": [metrics of each replication, flat]}
        replication-0/         samples.parquet ... gates.parquet (one a table), decisions.jsonl

    Results of an earlier run of that name are replaced; anything else there is left alone with a ``StoreError``.
    In ``name``, characters that file systems refuse become ``-``. Raises ``ParameterError`` for no runs.
    """
    if not runs:
        raise ParameterError("runs", 0, "at least one run")
    target = Path(directory) / file_name(name)
    read = [digest(run) for run in runs]
    measured = [metrics_of(run_digest) for run_digest in read]
    with _replacing_directory(target, METRICS) as part:
        (part / SCENARIO).write_text(resolved_yaml(runs[0].plan.scenario), encoding="ascii")
        write_metrics(part, measured)
        for run_digest in read:
            replication = part / f"replication-{run_digest.run.replication}"
            replication.mkdir()
            _fill(replication, run_digest)
    return target


def write_run(directory: Path, run: FinishedRun) -> None:
    """Tables and decisions of one run in a directory of their own, in full or not at all.

    An earlier run there is replaced; ``StoreError`` where there is something else.
    """
    read = digest(run)
    with _replacing_directory(directory, DECISIONS) as part:
        _fill(part, read)


def read_table(path: Path) -> pd.DataFrame:
    """A table that was saved; one of an earlier version has ``outcome`` under its former name, which is said."""
    import pandas as pd

    table = pd.read_parquet(path)
    if "fate" in table.columns:
        warnings.warn(f"{path}: column fate is now named outcome; read as outcome", FutureWarning, stacklevel=2)
        table = table.rename(columns={"fate": "outcome"})
    return table


def write_metrics(directory: Path, measured: Sequence[Metrics]) -> None:
    """``metrics.json`` of some replications."""
    text = json.dumps({"runs": [metrics.as_dict() for metrics in measured]}, indent=1, allow_nan=False)
    with replacing(directory / METRICS) as part:
        part.write_text(text + "\n", encoding="utf-8")


def file_name(name: str) -> str:
    """``name`` as a name of a directory."""
    return re.sub(r"[^\w+. -]", "-", name).strip(" .") or "run"


def _fill(directory: Path, read: Digest) -> None:
    for table, columns in {**table_columns(read), **progress_tables(read)}.items():
        path = directory / f"{table}.parquet"
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays = {
            name: pa.array(values.tolist(), pa.string()) if values.dtype == object else pa.array(values)
            for name, values in columns.items()
        }
        pq.write_table(pa.table(arrays), path, compression="zstd", compression_level=3)
    write_decisions(directory / DECISIONS, read.run.log.decisions)


def write_decisions(path: Path, decisions: Iterable[Decision]) -> None:
    """One JSON value a line."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(encode(to_json(decision)) + "\n" for decision in decisions)


def load_decisions(path: str | os.PathLike[str], max_bytes: int = MAX_DECISION_BYTES) -> list[Decision]:
    """The decisions of a ``decisions.jsonl``.

    The last line of a run that was broken off may be cut short: its commands were never carried out, it is left out.
    Raises ``StoreError`` for a file that cannot be read or is larger than ``max_bytes``, and ``RecordError``
    with file and line for one that does not hold decisions.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > max_bytes:
                raise StoreError(f"{name}: found {size} bytes; allowed: at most {max_bytes}")
            numbered = ((number, line) for number, line in enumerate(file, 1) if line.strip() and not _cut(line))
            return [_decision(line, f"{name}:{number}") for number, line in numbered]
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{name}: {error.strerror}") from error


def _cut(line: bytes) -> bool:
    """Whether this is only the beginning of a line, as the last of a file can be."""
    if line.endswith(b"\n"):
        return False
    try:
        json.loads(line)
    except ValueError:
        return True
    return False


def _decision(line: bytes, where: str) -> Decision:
    if len(line) > MAX_LINE_BYTES:
        raise RecordError(f"{where}: found a line of {len(line)} bytes; allowed: at most {MAX_LINE_BYTES}")
    try:
        return from_json(json.loads(line))
    except RecordError as error:
        raise RecordError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: not a line of JSON ({error})") from None


@contextmanager
def _replacing_directory(target: Path, mark: str) -> Iterator[Path]:
    """A new directory beside ``target`` that takes its place on success and vanishes on failure.

    What is there already is replaced when it holds the file ``mark``.
    """
    if target.exists() and not (target / mark).is_file():
        raise StoreError(f"{target}: exists and holds no results of rlsim; choose another directory")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        yield part
        if target.exists():
            os.replace(target, old)
        os.replace(part, target)
    finally:
        if old.exists() and not target.exists():
            os.replace(old, target)
        for leftover in (part, old):
            shutil.rmtree(leftover, ignore_errors=True)
