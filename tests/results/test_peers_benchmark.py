"""evidence/benchmarks/peers.py without peers: the requests that all get, and what is made of the measurements."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evidence import findings
from evidence.benchmarks.peers_cases import BLOCK_TOKENS, CASES, Case, read_lengths, requests, scenario, write_trace
from evidence.benchmarks.peers_profile import engine_alone
from evidence.benchmarks.peers_steps import last_replica, law, write_law
from evidence.benchmarks.peers_table import Ran, Row, ratio_table, ratios, table
from evidence.benchmarks.peers_tools import (
    TOOLS,
    Process,
    Told,
    ToolError,
    aisimulate_config,
    environment,
    last_words,
    run_process,
)
from rlsim.core.commands import Submit
from rlsim.core.events import Finished
from rlsim.core.log import WindowRow
from rlsim.sim.simulation import simulate

SMALL = Case("small", "40 rollouts in groups of 4", 10, 4, 2, 60, 120, 400, bar=10)


def test_the_trace_holds_the_requests_that_rlsim_simulates(tmp_path: Path) -> None:
    made = scenario(SMALL)
    write_trace(tmp_path / "trace.jsonl", requests(made))
    lengths = read_lengths(tmp_path / "trace.jsonl")
    log = simulate(made).log
    ended = {row.event.sample: row.event.tokens for row in log.decisions if isinstance(row.event, Finished)}
    asked = {row.sample: row.context_tokens for row in log.decisions[0].commands if isinstance(row, Submit)}
    assert lengths == [(asked[sample], ended[sample]) for sample in range(SMALL.requests)]


def test_nothing_enters_beyond_the_requests_of_the_trace() -> None:
    log = simulate(scenario(SMALL)).log
    assert sum(isinstance(command, Submit) for row in log.decisions for command in row.commands) == SMALL.requests


def test_samples_of_a_prompt_share_its_hashes_and_no_other_prompt_has_them(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.jsonl", requests(scenario(SMALL)))
    rows = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    groups = [rows[start : start + SMALL.group] for start in range(0, len(rows), SMALL.group)]
    assert all(row["hash_ids"] == group[0]["hash_ids"] for group in groups for row in group)
    hashes = [number for group in groups for number in group[0]["hash_ids"]]
    assert len(hashes) == len(set(hashes))
    assert all(len(row["hash_ids"]) == -(-row["input_length"] // BLOCK_TOKENS) for row in rows)


def test_replicas_alone_end_when_the_whole_simulation_does() -> None:
    log = simulate(scenario(SMALL)).log
    assert engine_alone(SMALL)[1] == max(row.end for row in log.windows)


def test_the_law_as_tables_is_the_law_to_half_a_picosecond_a_term(tmp_path: Path) -> None:
    write_law(tmp_path / "law.json", BLOCK_TOKENS)
    tables = json.loads((tmp_path / "law.json").read_text())
    step = tables["dense"][103] + tables["sequence"][8] + tables["kv"][7] * 9000 + tables["prefill"][96]
    assert step + tables["pair"] * 4656 == pytest.approx(
        law().mixed_seconds(7, 9000, 1, 96, 4656), abs=(4 + 9000 + 4656) / 2 * 1e-12
    )


def test_a_peer_is_given_the_engine_that_rlsim_simulates() -> None:
    for case in CASES:
        rollout = scenario(case).scenario.rollout
        engine = aisimulate_config(case, Path("trace"))["engine"]
        assert isinstance(engine, dict)
        worker = engine["workers"]["aggregated"]
        assert worker["parallelism"]["replicas"] == rollout.gpus
        assert worker["scheduler"] == {
            "max_batched_tokens": rollout.max_num_batched_tokens,
            "max_sequences": rollout.max_num_seqs,
        }
        assert worker["kv_cache"]["block_size"] == rollout.block_size
        assert worker["kv_cache"]["capacity"] == {"type": "fixed", "blocks": rollout.kv_blocks}


# -- tables -----------------------------------------------------------------------------------------------


def ran(engine: float, cpu: float, wall: float = 9.0) -> Ran:
    return Ran(Told(100.0, engine, 1234), Process(wall, cpu, 300.0), Process(1.0, 1.0, 70.0))


def measured() -> list[Row]:
    own = Row("rlsim", SMALL, 2_000_000, "all", (ran(0.9, 3.0), ran(0.1, 2.0), ran(0.2, 2.0)))
    peer = Row("AISimulate 9", SMALL, 2_000_000, "some", (ran(4.0, 9.0), ran(4.0, 9.0), ran(4.0, 9.0)))
    return [own, peer, Row("Vidur 9", SMALL, 2_000_000, "", reason="not installed: no such release")]


def test_a_ratio_is_of_medians_and_says_whether_its_aim_is_met() -> None:
    (found,) = ratios(measured())
    assert (found.engine, found.run, found.process) == (4.0 / 0.2, 8.0 / 1.0, 9.0 / 2.0)
    assert "20.0x, met | 8.0x, missed | 4.5x, missed" in ratio_table([found])


def test_a_tool_without_a_figure_is_a_row_with_the_reason_and_in_no_ratio() -> None:
    rows = measured()
    assert "| Vidur 9 | none: not installed: no such release |" in table(rows)
    assert ratios([rows[0], replace(rows[1], runs=(), reason="stopped after 9 s"), rows[2]]) == []


def test_a_row_has_tokens_by_the_engine_s_own_time_and_by_that_of_the_process() -> None:
    line = next(line for line in table(measured()).splitlines() if line.startswith("| rlsim"))
    assert line == "| rlsim | 100.0 | 1,234 | 0.20 | 1.00 | 2.00 | 9.0 | 10.00 | 1.00 | 300 | 70 | all |"


def test_a_busy_machine_is_told_since_a_peer_s_engine_time_is_wall_time() -> None:
    assert "the machine was busy" in table(measured())
    quiet = Row("rlsim", SMALL, 2_000_000, "all", (ran(0.1, 2.0, wall=2.1),))
    assert "busy" not in table([quiet])


def test_the_tables_that_are_kept_for_the_documents_are_those_that_were_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "DATA", tmp_path)
    rows = measured()
    report = ["### Predictions", "Two cores.", table(rows), "### Ratios", ratio_table(ratios(rows))]
    printed = findings.parsed("\n\n".join(report))
    findings.save("benchmarks", printed)
    kept = findings.load("benchmarks")
    assert kept == printed
    assert [section.title for section in kept if section.title] == ["Predictions", "Ratios"]
    assert findings.parsed(findings.markdown(kept)) == kept


def test_the_replica_that_ends_last_is_the_one_that_is_priced() -> None:
    early, late = WindowRow(0, 0, 9, 3, 4, 0, 0, 50), WindowRow(1, 0, 10, 3, 4, 0, 0, 50)
    assert last_replica([list(early), list(late)]) == [late]


# -- tools that fail --------------------------------------------------------------------------------------


def test_a_tool_without_its_python_is_refused_with_what_it_needs(tmp_path: Path) -> None:
    tool = replace(TOOLS[1], pythons=("python0.1",))
    with pytest.raises(ToolError, match=r"python0\.1"):
        environment(tool, tmp_path)


def test_a_process_that_fails_says_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="ValueError: no such model"):
        run_process(Path(sys.executable), ["-c", "raise ValueError('no such model')"], tmp_path, 60)
    assert last_words("  assert tokens < 3\n         ^^^^^^\nAssertionError\n") == "AssertionError: assert tokens < 3"


def test_a_process_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="stopped after 0 s"):
        run_process(Path(sys.executable), ["-c", "import time; time.sleep(60)"], tmp_path, 0.1)


def test_a_process_is_charged_for_its_own_memory_and_not_for_that_of_who_started_it(tmp_path: Path) -> None:
    small = run_process(Path(sys.executable), ["-c", "pass"], tmp_path, 60)
    large = run_process(Path(sys.executable), ["-c", "kept = bytearray(60 << 20)"], tmp_path, 60)
    assert large.peak_mib - small.peak_mib == pytest.approx(60, abs=8)


def test_a_tool_is_given_no_keys_and_a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    asked = f"import os; assert 'SOME_API_KEY' not in os.environ and os.environ['HOME'] == {str(tmp_path)!r}"
    run_process(Path(sys.executable), ["-c", asked], tmp_path, 60)
