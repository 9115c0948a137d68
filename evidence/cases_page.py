"""The table of cases in a document, between markers, so that prose around it stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rlsim.core.errors import ParameterError
from rlsim.results.store import replacing
from rlsim.studies.explain.cases import Answer
from rlsim.studies.text.explain import cells, score

BEGIN = "<!-- begin: rlsim explain --cases -->"
END = "<!-- end: rlsim explain --cases -->"


def put(path: Path, answers: Sequence[Answer]) -> None:
    """Replace what stands between the markers; ``ParameterError`` for a file without them."""
    text = path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        raise ParameterError("PAGE", str(path), f"a new file, or one with {BEGIN} and {END}")
    with replacing(path) as temporary:
        temporary.write_text(f"{before}{BEGIN}\n\n{chr(10).join(_lines(answers))}\n\n{END}{after}", encoding="utf-8")


def _lines(answers: Sequence[Answer]) -> Iterator[str]:
    yield score(answers)
    yield ""
    yield "| case | question | observed | simulated | agrees |"
    yield "|---|---|---|---|---|"
    for answer in answers:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells(answer))} |"
    yield ""
    for answer in answers:
        yield from _case(answer)


def _case(answer: Answer) -> Iterator[str]:
    """Where a case is from and what was assumed."""
    case = answer.case
    yield f"- **{case.id}** ({case.source}; `{Path(answer.file).name}`). Assumed: {'; '.join(case.assumptions)}."
    if case.reading:
        yield f"  {case.reading}"
