"""Small tables made by hand, with the columns of a run."""

from __future__ import annotations

import pandas as pd

ACTIVITY = ["who", "what", "start_seconds", "end_seconds", "steps", "decodes", "prefill_tokens", "kv_tokens"]


def activity(rows: list[tuple]) -> pd.DataFrame:
    return pd.DataFrame([(*row, *(0,) * (8 - len(row))) for row in rows], columns=ACTIVITY)


def samples(rows: list[dict]) -> pd.DataFrame:
    usual = {
        "group": 0, "response_tokens": 100, "submitted_seconds": 0.0, "finished_seconds": 50.0, "trained_step": 0,
        "trained_seconds": 60.0, "outcome": "trained", "finish_reason": "stop", "start_lag": 0.0, "end_lag": 0.0,
        "span": 0.0, "token_weighted_lag": 0.0,
    }  # fmt: skip
    return pd.DataFrame([{"sample": number, **usual, **row} for number, row in enumerate(rows)])


def services(rows: list[tuple] = ()) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["sample", "what", "asked_seconds", "start_seconds", "end_seconds"])


def gates(rows: list[tuple] = ((0.0, "barrier"),)) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["start_seconds", "gate"])


def run_tables() -> dict[str, pd.DataFrame]:
    """Two replicas and a trainer of their own over 100 s: one batch is made, trained on and published."""
    rows = [
        (-1, "idle:data", 0.0, 60.0),
        (-1, "update_actor", 60.0, 90.0),
        (-1, "sync", 90.0, 100.0),
        (0, "prefill", 0.0, 10.0, 1, 0, 400, 0),
        (0, "decode", 10.0, 50.0, 40, 4, 0, 800),
        (0, "idle:tail", 50.0, 90.0),
        (0, "sync", 90.0, 100.0),
        (1, "prefill", 0.0, 10.0, 1, 0, 400, 0),
        (1, "decode", 10.0, 50.0, 40, 4, 0, 800),
        (1, "decode", 50.0, 60.0, 10, 1, 0, 300),
        (1, "idle:staleness", 60.0, 90.0),
        (1, "sync", 90.0, 100.0),
    ]
    made = [{"group": number // 4, "finished_seconds": 60.0 if number == 7 else 50.0} for number in range(8)]
    return {
        "activity": activity(rows),
        "samples": samples(made),
        "services": services(),
        "gates": gates([(0.0, "barrier"), (60.0, "")]),
    }
