"""Whoever only simulates pays nothing for live execution."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_of_live_imports_torch_until_it_runs() -> None:
    modules = "rlsim.live.tasks.registry, rlsim.live.protocols, rlsim.live.torch.trainer, rlsim.live.ray.cluster"
    code = f"import sys, {modules}; print(sorted({{'torch', 'transformers', 'vllm', 'ray'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
