"""Real OpenAI-compatible servers on the loopback, started as docs/guide/run-live-on-servers.md says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1"}
LLAMA_CPP = """
import sys, time, xllamacpp
settings = xllamacpp.CommonParams()
settings.model.path, port = sys.argv[1], int(sys.argv[2])
settings.hostnames, settings.port = ["127.0.0.1"], port
settings.n_ctx, settings.n_parallel, settings.kv_unified = 4 * 512, 4, False
settings.cpuparams.n_threads, settings.endpoint_metrics, settings.warmup = 1, True, False
server = xllamacpp.Server(settings)
while True:
    time.sleep(1)
"""


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def serving(
    command: Sequence[str], port: int, log: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A server process, from the moment it answers; killed at the end."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment})
    try:
        _await_ready(process, f"http://127.0.0.1:{port}/health", log)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(process: subprocess.Popen[bytes], url: str, log: Path, seconds: float = 240) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert process.poll() is None, f"the server ended: {log.read_text(errors='replace')[-2000:]}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"no answer after {seconds:g} s: {log.read_text(errors='replace')[-2000:]}")


def vllm_command(model: Path, port: int) -> list[str]:
    """vLLM with everything that it capabilities switched on; weights from files where the worker extension is there."""
    transfer = ["--worker-extension-cls", "rlsim.live.vllm.worker.WorkerExtension"]
    transfer += ["--weight-transfer-config", json.dumps({"backend": "rlsim-file"})]
    return [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)),
        *("--enable-scale-out", "--scheduling-policy", "priority"),
        *("--max-model-len", "512", "--max-num-seqs", "8", "--dtype", "bfloat16", "--enforce-eager"),
        *("--block-size", "32", "--num-gpu-blocks-override", "64", "--kv-cache-memory-bytes", str(64 << 20)),
        *("--distributed-executor-backend", "uni", "--disable-uvicorn-access-log"),
        *(transfer if has_worker() else ()),
    ]


def has_worker() -> bool:
    """Whether vLLM's workers can be given weights from files."""
    return find_spec("rlsim.live.vllm.worker") is not None


VLLM_ENVIRONMENT = {
    **OFFLINE,
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def llama_cpp_command(model: Path, port: int) -> list[str]:
    """llama.cpp's own HTTP server, from the wheel of xllamacpp."""
    return [sys.executable, "-c", LLAMA_CPP, str(model), str(port)]


def transformers_command(model: Path, port: int) -> list[str]:
    """The server of the transformers library: text alone."""
    start = (
        "import sys; from transformers.cli.serve import Serve; "
        "Serve(sys.argv[1], device='cpu', host='127.0.0.1', port=int(sys.argv[2]))"
    )
    return [sys.executable, "-c", start, str(model), str(port)]
