"""Tables as text: at any width that holds a word, no cell and no heading is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlsim.studies.text.table import new_table, rendered, wrapped

WORDS = st.text("abcdefgh", min_size=1, max_size=9)
NUMBERS = st.integers(0, 99_999_999).map("{:,}".format)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]], int]:
    texts, numbers = draw(st.integers(1, 2)), draw(st.integers(1, 9))
    headings = draw(st.lists(st.lists(WORDS, min_size=1, max_size=3).map(" ".join), min_size=texts + numbers,
                             max_size=texts + numbers))  # fmt: skip
    rows = draw(st.lists(st.tuples(*[WORDS] * texts, *[NUMBERS] * numbers).map(list), min_size=1, max_size=4))
    return headings, rows, texts


@given(table=tables(), width=st.integers(50, 120))
def test_a_table_of_any_width_shows_every_cell(table: tuple[list[str], list[list[str]], int], width: int) -> None:
    headings, rows, texts = table
    text = rendered([new_table("a title", headings, rows, texts=texts)], width=width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text
    words = [word for line in lines for word in line.split()]
    assert {word for heading in headings for word in heading.split()} <= set(words)
    assert {cell for row in rows for cell in row} <= set(words)
    assert words.count("title") == 1


def test_a_table_that_fits_is_one_and_one_that_does_not_repeats_what_its_rows_are_of() -> None:
    made = new_table(None, ["arm", *["seconds"] * 6], [["one", *["1,000.5"] * 6], ["two", *["2"] * 6]])
    assert rendered([made], width=80).count("one") == 1
    assert rendered([made], width=50).count("one") == 2


def test_a_sentence_goes_on_below_its_beginning() -> None:
    first, second = wrapped(f"  - {'word ' * 20}").splitlines()
    assert first.startswith("  - word")
    assert second.startswith("      word")
