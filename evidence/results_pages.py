"""The evidence pages: Markdown from committed results (``evidence/data``), which the commands named here make again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evidence.findings import DATA, load, markdown, table

Json = Mapping[str, Any]

_FROM = "The tables are generated from `evidence/data/{name}`, which `{command}` writes.\n"


def validation() -> str:
    """Predictions against published measurements, an entry a section."""
    results = _read("validation.json")
    return "\n".join(
        [
            "# Predictions against published measurements\n",
            "`rlsim validate` simulates what others measured and published: one file an entry in",
            "`scenarios/published/`, one calibrated row an entry. Misses and failures are rows like the others.\n",
            _FROM.format(name="validation.json", command="rlsim validate --json"),
            markdown(load("validation-findings")),
            "## Scores\n",
            *table(("framework", "predicted rows", "failed", "median error", "90th percentile"), _scores(results)),
            "",
            *_bars(results),
            "",
            *(line for entry in results["entries"] for line in _entry(entry, results["rows"])),
        ]
    )


def claims() -> str:
    """Speed-ups that papers claim, over the conditions that their sources leave open."""
    systems = _read("claims.json")["systems"]
    columns = ("system", "claimed", "simulated, lowest", "simulated, highest", "verdict", "holds in")
    return "\n".join(
        [
            "# Claims of published systems\n",
            _FROM.format(name="claims.json", command="python -m evidence claims scenarios/systems/*.yaml --json"),
            *table(columns, [_claim_row(system) for system in systems]),
            "",
            markdown(load("claims-findings")),
            "## Conditions and assumptions\n",
            *(line for system in systems for line in _claim(system)),
        ]
    )


def cases() -> str:
    """Questions that users asked, with what was observed and what is simulated."""
    results = _read("cases.json")
    rows = [(c["id"], c["question"], c["observed"], _simulated(c), _agreement(c)) for c in results["cases"]]
    return "\n".join(
        [
            "# Questions that users asked\n",
            _FROM.format(name="cases.json", command="rlsim explain --cases scenarios/cases --json"),
            markdown(load("cases-findings")),
            "## Answers\n",
            f"{results['score']}\n",
            *table(("case", "question", "observed", "simulated", "agrees"), rows),
            "",
            *(line for case in results["cases"] for line in _case(case)),
        ]
    )


def accuracy() -> str:
    """Errors against vLLM, recorded runs, tables and servers; the roofline table is computed."""
    from evidence import roofline_phases

    text, after = (f"{part.strip()}\n" for part in load("roofline")[0].text.split("\n\n", 1))
    rooflines = ["## Rooflines of two devices\n", text, roofline_phases.page(), after]
    return "\n".join(["# Accuracy\n", markdown(load("accuracy")), *rooflines])


def prose(title: str, *names: str) -> str:
    """A page of findings alone."""
    return "\n".join([f"# {title}\n", *(markdown(load(name)) for name in names)])


def _read(name: str) -> Json:
    results: Json = json.loads((DATA / name).read_text(encoding="utf-8"))
    return results


def _number(value: float) -> str:
    """Four significant digits at most."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def _scores(results: Json) -> Iterator[tuple[str, ...]]:
    for score in results["scores"]:
        errors = ("-" if score[name] is None else f"{score[name]:.1%}" for name in ("median", "p90"))
        yield (score["name"], str(score["rows"]), str(score["failed"]), *errors)


def _bars(results: Json) -> Iterator[str]:
    whole, counted = results["scores"][-1], [pair for pair in results["pairs"] if pair["counts"]]
    signs = [pair for pair in counted if pair["is_speedup"]]
    right, ordered = (sum(pair["agrees"] for pair in pairs) for pairs in (signs, counted))
    yield f"- Median error {whole['median']:.1%}; the bar is 12 %."
    yield f"- 90th percentile {whole['p90']:.1%}; the bar is 30 %."
    yield f"- Sign of speed-ups above 5 %: {right} of {len(signs)} right; the bar is all."
    yield f"- Order of pairs more than 5 % apart: {ordered} of {len(counted)} right; the bar is 90 %."
    for pair in counted:
        if not pair["agrees"]:
            predicted = "no prediction" if pair["predicted"] is None else f"predicted {pair['predicted']:.2f}x"
            arms, of = f"{pair['entry']}, {pair['second']} over {pair['first']}", pair["quantity"].replace("_", " ")
            yield f"    - wrong: {arms}: measured {pair['measured']:.2f}x, {predicted} ({of})"


def _entry(entry: Json, rows: Sequence[Json]) -> Iterator[str]:
    own = [row for row in rows if row["entry"] == entry["id"]]
    yield f"## {entry['id']}: {entry['title']}\n"
    yield f"{entry['source']}.{'' if own else ' No row yet.'}\n"
    if own:
        columns = ("row", "quantity", "measured", "predicted", "error", "grade", "status")
        yield from table(columns, list(map(_row, own)))
        yield ""
    for row in own:
        if row["calibrated"]:
            fitted = ", ".join(row["fitted"]) or "nothing fitted, an identity"
            yield f"- calibrated on {row['arm']}, {row['quantity']}: {fitted}"
    yield from (f"- assumed: {assumed}" for assumed in entry["assumptions"])
    yield from (f"- not yet expressible: {left['what']}: {left['reason']}" for left in entry["left_out"])
    if entry["misses"]:
        yield f"- why it is off, and what would settle it: {entry['misses']}"
    yield ""


def _row(row: Json) -> tuple[str, ...]:
    of = row["quantity"].replace("_", " ")
    if row.get("decodes"):
        of = f"engine step, {row['decodes']} x {row['context_tokens']}, s"
    quantity = f"speed-up over {row['over']}, by {of}" if row["over"] else of
    predicted = f"failed: {row['failure']}" if row["predicted"] is None else _estimate(row["predicted"])
    error = "" if row["error"] is None else f"{row['error']:+.1%}"
    status = "calibrated" if row["calibrated"] else "predicted"
    return (row["arm"], quantity, _number(row["measured"]), predicted, error, row["grade"], status)


def _estimate(estimate: Json) -> str:
    mean, low, high = (estimate[name] for name in ("mean", "low", "high"))
    return _number(mean) if low is None or high is None else f"{_number(mean)} ± {_number((high - low) / 2)}"


def _claim_row(system: Json) -> tuple[str, ...]:
    points, (low, high) = sorted(system["points"], key=lambda point: point["mean"]), system["ratios"]
    claimed = f"{low:.2f}x" if low == high else f"{low:.2f}x to {high:.2f}x"
    held = f"{sum(point['mean'] >= low for point in points)} of {len(points)}"
    return (system["system"], claimed, _ratio(points[0]), _ratio(points[-1]), system["verdict"], held)


def _ratio(point: Json) -> str:
    interval = "" if point["low"] is None else f" ({point['low']:.2f}-{point['high']:.2f})"
    return f"{point['mean']:.2f}x{interval}"


def _claim(system: Json) -> Iterator[str]:
    yield f"### {system['system']}\n"
    yield f"{system['system']}: {system['claim']} ({system['source']}).\n"
    for point in system["points"]:
        holds = ", as claimed" if point["mean"] >= system["ratios"][0] else ""
        also = f"; {system['also'].replace('_', ' ')} {_ratio(point['also'])}" if point.get("also") else ""
        yield f"- found {_ratio(point)}{holds}: {point['label']}{also}"
    yield from (f"- assumed: {assumed}" for assumed in system["assumed"])
    yield ""


def _simulated(case: Json) -> str:
    measured = f"{case['measure']} of {case['arm']}" + (f" over {case['over']}" if case["over"] else "")
    mean, low, high = (case["simulated"][name] for name in ("mean", "low", "high"))
    interval = "" if low is None else f" [{low:.3g}, {high:.3g}]"
    return f"{measured}: {mean:.3g}{interval}"


def _agreement(case: Json) -> str:
    if case["size_error"] is None:
        return f"direction {case['direction_agrees']}"
    size = "yes" if abs(case["size_error"]) <= 0.25 else "no"
    return f"direction {case['direction_agrees']}, size {size} ({case['size_error']:+.0%})"


def _case(case: Json) -> Iterator[str]:
    yield f"- **{case['id']}** ({case['source']}). Assumed: {'; '.join(case['assumptions'])}."
    if case["reading"]:
        yield f"  {case['reading']}"
