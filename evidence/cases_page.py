"""The table of cases in a document, between markers, so that prose around it stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rlsim.core.errors import ParameterError
from rlsim.results.store import replacing
from rlsim.studies.explain.cases import CaseResult
from rlsim.studies.text.explain import cells, score

BEGIN = "<!-- begin: rlsim explain --cases -->"
END = "<!-- end: rlsim explain --cases -->"


def put(path: Path, results: Sequence[CaseResult]) -> None:
    """Replace what stands between the markers; ``ParameterError`` for a file without them."""
    text = path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        raise ParameterError("PAGE", str(path), f"a new file, or one with {BEGIN} and {END}")
    with replacing(path) as temporary:
        temporary.write_text(f"{before}{BEGIN}\n\n{chr(10).join(_lines(results))}\n\n{END}{after}", encoding="utf-8")


def _lines(results: Sequence[CaseResult]) -> Iterator[str]:
    yield score(results)
    yield ""
    yield "| case | question | observed | simulated | agrees |"
    yield "|---|---|---|---|---|"
    for result in results:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells(result))} |"
    yield ""
    for result in results:
        yield from _case(result)


def _case(result: CaseResult) -> Iterator[str]:
    """Where a case is from and what was assumed."""
    case = result.case
    yield f"- **{case.id}** ({case.source}; `{Path(result.file).name}`). Assumed: {'; '.join(case.assumptions)}."
    if case.reading:
        yield f"  {case.reading}"
