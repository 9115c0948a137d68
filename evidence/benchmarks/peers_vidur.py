"""Vidur on one trace, run by the interpreter of its environment, with rlsim's step times handed to it.

Its package has no profile of any model and fetches one from a model hub at run time; offline it cannot price a step.
So the law is given to it as tables (``law.json`` beside the trace). The model's name only says how many
layers share that time: it knows no Qwen3-8B.

    python peers_vidur.py TRACE DIRECTORY REPLICAS
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

LAYERS = 32
MODEL = "meta-llama/Llama-3-8B"


def main(trace: Path, directory: Path, replicas: int) -> None:
    from vidur.execution_time_predictor import ExecutionTimePredictorRegistry
    from vidur.simulator import Simulator
    from vidur.types import ExecutionTimePredictorType

    law = json.loads((trace.parent / "law.json").read_text())
    kind = ExecutionTimePredictorType.RANDOM_FORREST
    ExecutionTimePredictorRegistry.unregister(kind)
    ExecutionTimePredictorRegistry.register(kind, predictor_class(law))
    simulator = Simulator(configuration(trace, directory, replicas, law))
    start = time.process_time()
    simulator.run()
    told = {"engine_seconds": time.process_time() - start, "makespan_seconds": float(simulator._time)}
    (directory / "measured.json").write_text(json.dumps(told))


def predictor_class(law: dict):
    """A predictor that looks a batch up in the tables of the law, seconds in and milliseconds out."""
    from vidur._native.entities import ExecutionTime
    from vidur.execution_time_predictor.base_execution_time_predictor import BaseExecutionTimePredictor

    dense, sequence, kv, prefill = (law[key] for key in ("dense", "sequence", "kv", "prefill"))

    class Handed(BaseExecutionTimePredictor):
        def get_execution_time(self, batch, pipeline_stage):
            decodes = kv_tokens = tokens = pairs = 0
            for asked, context in zip(batch.num_q_tokens, batch.num_kv_tokens, strict=True):
                if asked == 1:
                    decodes, kv_tokens = decodes + 1, kv_tokens + context
                else:  # its context has the chunk in it
                    tokens, pairs = tokens + asked, pairs + asked * (context - asked) + asked * (asked + 1) // 2
            seconds = dense[decodes + tokens] + sequence[len(batch.num_q_tokens)] + kv[decodes] * kv_tokens
            seconds += prefill[tokens] + law["pair"] * pairs
            return ExecutionTime(LAYERS, 0.0, 0.0, 0.0, 1e3 * seconds / LAYERS, *[0.0] * 10)

    Handed.__abstractmethods__ = frozenset()  # what it asks one by one is in the tables
    return Handed


def configuration(trace: Path, directory: Path, replicas: int, law: dict):
    from vidur.config import (
        CacheConfig,
        ClusterConfig,
        MetricsConfig,
        ReplicaConfig,
        SarathiSchedulerConfig,
        SimulationConfig,
        TraceRequestGeneratorConfig,
    )

    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    table = directory / "trace.csv"
    lines = [f"day,0,{row['input_length']},{row['output_length']}" for row in rows]
    table.write_text("\n".join(["Date,Time,PromptTokenCount,CompletionTokenCount", *lines]) + "\n")
    longest = max(row["input_length"] + row["output_length"] for row in rows)
    return SimulationConfig(
        cluster_config=ClusterConfig(
            num_replicas=replicas,
            replica_config=ReplicaConfig(model_name=MODEL, num_pipeline_stages=1, tensor_parallel_size=1),
            cache_config=CacheConfig(block_size=law["block_tokens"], num_blocks=law["kv_blocks"]),
            replica_scheduler_config=SarathiSchedulerConfig(batch_size_cap=law["seats"], chunk_size=law["budget"]),
        ),
        request_generator_config=TraceRequestGeneratorConfig(
            trace_file=str(table),
            date="day",
            prefill_scale_factor=1,
            decode_scale_factor=1,
            time_scale_factor=1,
            max_tokens=longest,
        ),
        metrics_config=MetricsConfig(
            output_dir=str(directory / "out"), enable_chrome_trace=False, store_plots=False, write_json_trace=False
        ),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
