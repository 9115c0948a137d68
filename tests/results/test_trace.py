from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter, defaultdict

import pytest
from small_tables import activity, run_tables, services

from rlsim.resolve import resolve
from rlsim.results import trace
from rlsim.results.tables import tables
from rlsim.scenario.document import load
from rlsim.sim.simulation import simulate

QUICKSTART = "scenarios/quickstart.yaml"
SMALL = ["workload.prompts_per_step=4", "workload.group_size=4", "trainer.updates_per_step=1"]
ARMS = ["on-policy colocated", "one-off 8+8", "bounded staleness 8+8"]


@pytest.fixture(scope="module", params=ARMS)
def simulated(request):
    return tables(simulate(resolve(load(QUICKSTART, sets=SMALL).resolve(request.param)), steps=3))


def events(found, phase, **options):
    return [event for event in trace.trace_events(found, **options) if event["ph"] == phase]


def nanoseconds(event):
    start = round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


def test_slices_of_a_thread_follow_each_other(simulated):
    threads = defaultdict(list)
    for event in events(simulated, "X"):
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        threads[event["pid"], event["tid"]].append(nanoseconds(event))
    for slices in threads.values():
        slices.sort()
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(slices))


def test_slices_hold_all_activity(simulated):
    rows = simulated["activity"]
    slices = events(simulated, "X")
    assert sum(event["dur"] for event in slices) / 1e6 == pytest.approx((rows.end_seconds - rows.start_seconds).sum())
    assert sum(event["args"].get("steps", 0) for event in slices) == rows.steps.sum()


def test_every_thread_with_slices_has_a_name(simulated):
    named = {(e["pid"], e["tid"]) for e in events(simulated, "M") if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events(simulated, "X")} <= named


def test_versions_are_numbered_in_order(simulated):
    versions = [event for event in events(simulated, "i") if event["name"].startswith("version")]
    assert [event["name"] for event in versions] == ["version 1", "version 2", "version 3"]
    assert [event["ts"] for event in versions] == sorted(event["ts"] for event in versions)


def test_roles_are_processes_and_replicas_are_threads():
    names = [event["args"]["name"] for event in events(run_tables(), "M", name="arm") if "name" in event["args"]]
    assert names == ["arm: rollout", "arm: trainer", "replica 0", "replica 1", "trainer"]


def test_a_window_tells_its_batch():
    found = next(event for event in events(run_tables(), "X") if event["name"] == "decode")
    assert (found["ts"], found["dur"]) == (10e6, 40e6)
    assert found["args"] == {"steps": 40, "decodes": 4, "prefill_tokens": 0, "kv_tokens": 800}


def test_gates_and_counters_are_there():
    assert [e["name"] for e in events(run_tables(), "i") if "gate" in e["name"]] == ["gate: barrier", "gate: open"]
    last = {event["name"]: event["args"]["value"] for event in events(run_tables(), "C")}
    assert last == {"samples in flight": 0, "samples decoding": 0, "complete groups waiting": 0}


def test_calls_that_overlap_have_lanes_of_their_own():
    calls = services([(0, "tool", 0, 0, 5), (1, "tool", 0, 1, 3), (2, "tool", 0, 3, 4), (3, "reward", 0, 0, 9)])
    slices = [e for e in events(run_tables() | {"services": calls}, "X") if e["pid"] == trace.TOOLS_PROCESS]
    lanes = {event["args"]["sample"]: event["tid"] for event in slices}
    assert lanes[1] == lanes[2] != lanes[0]
    assert lanes[3] not in (lanes[0], lanes[1])


def test_calls_beyond_the_lanes_are_counted_but_not_drawn():
    count = trace.MOST_LANES + 10
    found = run_tables() | {"services": services([(sample, "tool", 0, 0, 5) for sample in range(count)])}
    assert Counter(e["pid"] for e in events(found, "X"))[trace.TOOLS_PROCESS] == trace.MOST_LANES
    assert max(e["args"]["value"] for e in events(found, "C") if e["name"] == "tool calls running") == count


def many_windows(count, what):
    rows = [(0, what(i), i * 0.5, (i + 1) * 0.5, 5, 1 + i % 2, i % 3, i) for i in range(count)]
    end = count / 2
    return activity(
        [*rows, (0, "sync", end, end + 1), (0, "decode", end + 1, end + 2, 7, 1, 0, 9), (1, "decode", 0, 1, 2, 1)]
    )


@pytest.mark.parametrize("what", [lambda i: "decode", lambda i: "prefill" if i % 2 else "decode"])
def test_beyond_the_limit_windows_are_merged_without_losing_any(what):
    found = run_tables() | {"activity": many_windows(1000, what)}
    assert len(events(found, "X")) == 1003
    slices = events(found, "X", most_slices=20)
    assert len(slices) <= 20
    assert sum(event["args"].get("windows", 1) for event in slices) == 1003
    assert sum(event["args"].get("steps", 0) for event in slices) == 1000 * 5 + 7 + 2
    assert sum(event["dur"] for event in slices) == pytest.approx(503e6)
    assert [event["dur"] for event in slices if event["name"] == "sync"] == [1e6]


def test_merging_averages_decodes_over_steps():
    rows = [(0, "decode", 0.0, 3.0, 3, 4, 0, 10), (0, "decode", 3.0, 4.0, 1, 2, 0, 12)]
    [found] = events(run_tables() | {"activity": activity(rows)}, "X", most_slices=1)
    assert found["args"] == {"steps": 4, "decodes": 3.5, "prefill_tokens": 0, "kv_tokens": 12, "windows": 2}


def test_windows_that_do_not_touch_merge_last():
    rows = [(0, "decode", 0.0, 1.0, 1, 1), (0, "decode", 2.0, 3.0, 1, 1), (0, "decode", 3.0, 4.0, 1, 1)]
    found = events(run_tables() | {"activity": activity(rows)}, "X", most_slices=2)
    assert [(event["ts"], event["dur"]) for event in found] == [(0, 1e6), (2e6, 2e6)]


def test_an_empty_run_is_a_valid_trace():
    empty = {name: table.iloc[:0] for name, table in run_tables().items()}
    assert events(empty, "X") == []


def test_the_file_is_json_and_gzip_holds_the_same(tmp_path, simulated):
    trace.write_trace(tmp_path / "run.json", simulated)
    trace.write_trace(tmp_path / "run.json.gz", simulated)
    plain = (tmp_path / "run.json").read_bytes()
    assert len(json.loads(plain)["traceEvents"]) == len(list(trace.trace_events(simulated)))
    assert gzip.decompress((tmp_path / "run.json.gz").read_bytes()) == plain


def test_the_same_tables_give_the_same_bytes(tmp_path):
    for name in ("a.gz", "b.gz"):
        trace.write_trace(tmp_path / name, run_tables())
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert (tmp_path / "a.gz").read_bytes()[4:8] == bytes(4)


def test_a_failure_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "run.json"
    path.write_text("old")
    with pytest.raises(KeyError):
        trace.write_trace(path, {name: table for name, table in run_tables().items() if name != "gates"})
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("run.json", "old")]
