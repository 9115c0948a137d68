"""A server's gauges: how many calls run and wait, and how full its KV is."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.ticks import Ticks
from rlsim.live.openai.client import missing

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError as error:
    raise missing(error) from error

NAMES = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"),
    "kv_use": ("vllm:kv_cache_usage_perc", "sglang:token_usage", "llamacpp:kv_cache_usage_ratio"),
}
"""What servers call them in Prometheus' text format."""
PREEMPTIONS = ("vllm:num_preemptions_total", "sglang:num_retractions_total")


@dataclass(frozen=True, slots=True)
class GaugeRow:
    """The gauges of one server at an instant."""

    at: Ticks
    running: int | None
    """Calls in its batch; None where it does not say."""
    waiting: int | None
    kv_use: float | None
    """Share of its KV blocks in use; of several engines behind one server, the fullest one's."""


def read_gauges(text: str) -> dict[str, float]:
    """Our gauges in a scrape; ``ValueError`` when it is not Prometheus' text format."""
    samples, gauges = _samples(text), {}
    for gauge, names in NAMES.items():
        values = next((samples[name] for name in names if name in samples), None)
        if values:
            gauges[gauge] = max(values) if gauge == "kv_use" else sum(values)
    return gauges


def preemptions(text: str) -> int:
    """How often running calls were put back in line, by vLLM's count or SGLang's; 0 where there is none."""
    samples = _samples(text)
    return int(sum(sum(samples.get(name, ())) for name in PREEMPTIONS))


def _samples(text: str) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample.value)
    return samples


def gauge_row(at: Ticks, gauges: dict[str, float]) -> GaugeRow:
    """A row of the gauges that the server has."""
    counts = {name: int(gauges[name]) if name in gauges else None for name in ("running", "waiting")}
    return GaugeRow(at, counts["running"], counts["waiting"], gauges.get("kv_use"))
