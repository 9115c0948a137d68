#!/usr/bin/env bash
# The calibrations on one CUDA GPU: the trainer's with torch alone, within 4 minutes; vLLM's where it is installed.
#
#   calibration/gpu_check.sh [MODEL] [PROFILE.json]
#
# MODEL is a folder with a config.json, or a built-in shape. Needs `rlsim` on the path with the extra 'calibrate', or
# 'live' for both. Interrupted, the same command goes on where it stopped.
set -euo pipefail
model=${1:-small6x512}
profile=${2:-gpu-profile.json}
limit_seconds=240
export HF_HUB_OFFLINE=1

found=$(python - <<'PYTHON'
import importlib.util

if importlib.util.find_spec("torch") is None:
    print("torch is not installed: pip install 'rlsim[calibrate]'")
else:
    import torch

    print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else "torch sees no CUDA GPU")
PYTHON
)
case $found in
torch*) echo "$found" >&2 && exit 2 ;;
esac
echo "== $found: training step of $model"
start=$SECONDS
# A minute is left for starting, warming up and fitting.
timeout --signal=INT "$limit_seconds" rlsim calibrate torch --model "$model" --device cuda --out "$profile" \
    --budget "$((limit_seconds - 60))s"
echo "== $((SECONDS - start)) s"

if python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("vllm") is None)'; then
    echo "== engine steps of $model with vLLM"
    rlsim calibrate vllm --model "$model" --device cuda --out "$profile" --budget 4m
else
    echo "== vLLM is not installed: its calibration is left out (pip install 'rlsim[live]')"
fi
rlsim profile show "$profile"
