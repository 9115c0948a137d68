"""The tools side by side: how each is installed, told what to simulate, run in a process of its own, and read.

They run in environments of their own, offline as far as they can be told to be, and are given only the trace file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evidence.benchmarks.peers_cases import BLOCK_TOKENS, BUDGET_TOKENS, KV_BLOCKS, SEATS, Case

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "WANDB_MODE": "disabled", "NO_COLOR": "1"}
PASSED = ("PATH", "LANG", "LC_", "LD_LIBRARY_PATH", "TMPDIR", "OPENBLAS_", "OMP_")
"""What of the user's environment a tool is given, and a home of its own: nobody's keys."""
Arguments = list[str]


class ToolError(Exception):
    """Why a tool cannot be had, or did not answer: its own last line where there is one."""


@dataclass(frozen=True, slots=True)
class Process:
    """What a finished process cost, its children included; ``peak_mib`` is of the largest of them."""

    wall_seconds: float
    cpu_seconds: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Told:
    """What a tool says of its run. ``engine_seconds``: the simulation without start-up, reading and writing."""

    makespan_seconds: float
    engine_seconds: float
    preemptions: int | None = None
    """None: it does not say."""


@dataclass(frozen=True, slots=True)
class Tool:
    """``requirement`` is None for rlsim as it is, which runs on the interpreter that runs the benchmark."""

    name: str
    requirement: str | None
    pythons: tuple[str, ...]
    imports: str
    """Statement that imports what a run imports."""
    record: str
    """What a run leaves of every request."""
    command: Callable[[Case, Path, Path], Arguments]
    """Arguments behind the interpreter, for a case, its trace file and a directory to write to."""
    read: Callable[[Path], Told]
    installs_with: Mapping[str, str] = field(default_factory=dict)
    """Variables that its installation is told beside the user's own."""

    @property
    def key(self) -> str:
        """Its name in folders and on the command line."""
        return self.name.replace(", ", "-").split()[0].lower()

    @property
    def is_checkout(self) -> bool:
        """Whether it is this source, which may have changed since it was last installed."""
        return self.requirement == str(CHECKOUT)


# -- rlsim ------------------------------------------------------------------------------------------------


def _rlsim_command(case: Case, trace: Path, directory: Path) -> Arguments:
    return [str(HERE / "peers_rlsim.py"), case.name, str(trace), str(directory)]


def _rlsim_read(directory: Path) -> Told:
    told = json.loads((directory / "measured.json").read_text())
    return Told(told["makespan_seconds"], told["engine_cpu_seconds"], told["preemptions"])


# -- AISimulate -------------------------------------------------------------------------------------------


def aisimulate_config(case: Case, trace: Path) -> dict[str, object]:
    """The prediction that is asked for, in its own schema (ai-dynamo/aisimulate, docs/cli-design.md)."""
    worker = {
        "parallelism": {"replicas": case.replicas, "tensor": 1, "pipeline": 1},
        "scheduler": {"max_batched_tokens": BUDGET_TOKENS, "max_sequences": SEATS},
        "kv_cache": {
            "block_size": BLOCK_TOKENS,
            "prefix_caching": True,
            "capacity": {"type": "fixed", "blocks": KV_BLOCKS},
        },
    }
    source = {"type": "trace", "paths": [str(trace)], "format": "mooncake", "block_size": BLOCK_TOKENS}
    engine = {"mode": "aggregated", "model": "Qwen/Qwen3-8B", "hardware": "h100_sxm", "backend": "vllm"}
    return {
        "traffic": {"source": source, "load": {"type": "trace_timestamps"}},
        "engine": {**engine, "workers": {"aggregated": worker}},
    }


def _aisimulate_command(case: Case, trace: Path, directory: Path) -> Arguments:
    config = directory / "prediction.yaml"
    config.write_text(json.dumps(aisimulate_config(case, trace)))  # JSON is YAML
    out = ["--output-dir", str(directory / "out"), "--overwrite", "--capture-per-request"]
    return ["-m", "aisimulate", "predict", "-c", str(config), *out]


def _aisimulate_read(directory: Path) -> Told:
    told = json.loads((directory / "out" / "prediction.json").read_text())
    readmitted = sum(request["readmission_count"] for request in told["per_request"])
    return Told(told["duration_ms"] / 1e3, told["wall_time_ms"] / 1e3, readmitted)


# -- Vidur ------------------------------------------------------------------------------------------------


def _vidur_command(case: Case, trace: Path, directory: Path) -> Arguments:
    return [str(HERE / "peers_vidur.py"), str(trace), str(directory), str(case.replicas)]


def _vidur_read(directory: Path) -> Told:
    told = json.loads((directory / "measured.json").read_text())
    return Told(told["makespan_seconds"], told["engine_seconds"])


TOOLS = (
    Tool(
        "rlsim",
        None,
        (),
        "import peers_cases, rlsim.sim.simulation, rlsim.results.store, scipy.special, pyarrow.parquet",
        "every decision and window, tables",
        _rlsim_command,
        _rlsim_read,
    ),
    Tool(
        "rlsim, compiled",
        str(CHECKOUT),
        (f"python{sys.version_info.major}.{sys.version_info.minor}",),
        "import peers_cases, rlsim.sim.simulation, rlsim.results.store, scipy.special, pyarrow.parquet",
        "every decision and window, tables",
        _rlsim_command,
        _rlsim_read,
        {"HATCH_BUILD_HOOK_ENABLE_MYPYC": "1"},
    ),
    Tool(
        "AISimulate 0.13 dev",
        "aisimulate==0.13.0.dev202610270000000085",
        ("python3.11", "python3.12", "python3.13"),
        "import aisimulate.main, aisimulate._runtime",
        "a record a request",
        _aisimulate_command,
        _aisimulate_read,
    ),
    Tool(
        "Vidur 0.0.26",
        "vidur==0.0.26",
        ("python3.11",),
        "import vidur.simulator",
        "metrics a request",
        _vidur_command,
        _vidur_read,
    ),
)


# -- environments and processes ---------------------------------------------------------------------------


def environment(tool: Tool, folder: Path) -> Path:
    """The interpreter of the tool's environment, made and filled if it is not there; ToolError with pip's reason."""
    if tool.requirement is None:
        return Path(sys.executable)
    home = folder / (tool.key if tool.is_checkout else tool.requirement.replace("==", "-"))
    python, complete = home / "bin" / "python", home / "complete"
    if not complete.exists():
        shutil.rmtree(home, ignore_errors=True)
        _checked([_interpreter(tool), "-m", "venv", str(home)], 120)
        _install(python, tool)
        complete.touch()
    elif tool.is_checkout:
        _install(python, tool, "--no-deps", "--force-reinstall")
    return python


def _install(python: Path, tool: Tool, *options: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = _copied(Path(folder)) if tool.is_checkout else str(tool.requirement)
        command = [str(python), "-m", "pip", "install", "-q", "--no-input", *options, source]
        _checked(command, 1800, os.environ | tool.installs_with)


def _copied(folder: Path) -> str:
    """What the package is built from, so that no library comes to lie in the checkout."""
    for name in ("rlsim", "calibration"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, folder / name)
    return str(folder)


def _interpreter(tool: Tool) -> str:
    roots = [Path.home() / ".pyenv" / "versions"]
    for name in tool.pythons:
        version = name.removeprefix("python")
        kept = sorted(found for root in roots for found in root.glob(f"{version}.*/bin/python"))
        if found := shutil.which(name) or next(map(str, kept), None):
            return found
    raise ToolError(f"needs one of {', '.join(tool.pythons)}")


def _checked(arguments: Sequence[str], seconds: float, environ: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=seconds, check=False, env=environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(str(error)) from error
    if done.returncode:
        raise ToolError(last_words(done.stderr))


def last_words(text: str) -> str:
    """The last line of what a program wrote to its errors, and the code that failed where that is only a name."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" ^~")]
    if not lines:
        return "ended without a word"
    return (f"{lines[-1]}: {lines[-2]}" if lines[-1].isidentifier() and lines[1:] else lines[-1])[:200]


def run_process(python: Path, arguments: Sequence[str], directory: Path, limit_seconds: float) -> Process:
    """Run to the end and measure; ToolError when it fails or takes longer than the limit."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(PASSED)}
    own_path = _own_path() if python == Path(sys.executable) else str(HERE)
    variables = {**kept, **OFFLINE, "HOME": str(directory), "PYTHONPATH": own_path}
    with tempfile.TemporaryDirectory(prefix="rlsim-peers-") as temporary:
        file = Path(temporary) / "cost.json"
        launch = [sys.executable, "-I", "-S", str(HERE / "peers_launch.py"), str(file), str(limit_seconds)]
        done = subprocess.run(
            [*launch, str(python), *arguments],
            cwd=directory,
            env=variables,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        cost = Process(**json.loads(file.read_text()))
    if cost.wall_seconds > limit_seconds:
        raise ToolError(f"stopped after {limit_seconds:.0f} s")
    if done.returncode:
        raise ToolError(last_words(done.stderr))
    return cost


def _own_path() -> str:
    import rlsim

    return os.pathsep.join([str(Path(rlsim.__file__).parents[1]), str(HERE)])
