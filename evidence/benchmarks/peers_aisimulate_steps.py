"""Prices of engine steps by AISimulate's own model, asked on standard input, answered as one line of JSON.

Run by the interpreter of its environment: states (decodes, KV tokens, prefill chunks, prefill tokens) in, seconds out.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    from aisimulate_core.sdk import ForwardPassPerfModelConfig, RustForwardPassPerfModel

    config = ForwardPassPerfModelConfig("Qwen/Qwen3-8B", "h100_sxm", "vllm", "aggregated")
    model = RustForwardPassPerfModel.best_available(config)
    print(json.dumps([_seconds(model, *state) for state in json.load(sys.stdin)]))


def _seconds(model: object, decodes: int, kv_tokens: int, chunks: int, prefill: int) -> float:
    asked = {"num_decode_requests": decodes, "sum_decode_kv_tokens": kv_tokens} if decodes else {}
    if chunks:
        asked |= {"num_prefill_requests": chunks, "sum_prefill_tokens": prefill}
    return model.estimate_forward_pass_time_ms({"scheduled_requests": asked}) / 1e3 if asked else 0.0


if __name__ == "__main__":
    main()
