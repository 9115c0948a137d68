"""A tool in a process of its own: right answers, and bounds that hold."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.core.commands import CallTool
from rlsim.live.pool import Served
from rlsim.live.sandbox import CALCULATOR, Bounds, Calculator, CalculatorTool, Sandbox, SandboxError
from rlsim.live.texts import ALPHABET, Spelling


def answer(text: str) -> str:
    return asyncio.run(Calculator().answer(text))


def run(program: str, bounds: Bounds | None = None) -> bytes:
    return asyncio.run(Sandbox(program, bounds or Bounds()).run(b""))


def parsed() -> dict[str, object]:
    """The calculator's functions, without a process."""
    found: dict[str, object] = {}
    exec(CALCULATOR[: CALCULATOR.index("sys.stdout.write")], found)
    return found


FUNCTIONS = parsed()


def quick(text: str) -> str:
    told = FUNCTIONS["answer"](text)  # type: ignore[operator]
    assert isinstance(told, str)
    return told


# -- answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2 + 3 * 4", "14"),
        (" (2+3)*4 \n", "20"),
        ("-2 ** 2", "-4"),
        ("2 ** 3 ** 2", "512"),
        ("7 // -2", "-4"),
        ("-7 % 3", "2"),
        ("12 / 4", "3"),
        ("1 / 0", "error: division by zero"),
        ("1 % (3 - 3)", "error: division by zero"),
        ("7 / 2", "error: not an integer"),
        ("9**9**9", "error: the number is too large"),
        ("2**-1", "error: a negative exponent"),
        ("9" * 2000, "error: the number is too large"),
        ("__import__('os').system('id')", "error: not integer arithmetic"),
        ("1 +", "error: it ends too early"),
        ("", "error: it ends too early"),
        ("(1", "error: a parenthesis is missing"),
        ("1 2", "error: something is left over"),
        ("* 2", "error: a number is missing"),
        ("(" * 3000, "error: too many levels"),
        ("٣ + 1", "error: not integer arithmetic"),
    ],
)
def test_what_the_calculator_answers(text: str, told: str) -> None:
    assert answer(text) == told


SUMS = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(" ".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-{text}"),
        st.tuples(inner, st.sampled_from(["0", "1", "2", "3"])).map(lambda two: f"({two[0]})**{two[1]}"),
    ),
    max_leaves=12,
)


@given(SUMS)
def test_it_agrees_with_python(text: str) -> None:
    try:
        expected = str(eval(text))
    except ZeroDivisionError:
        expected = "error: division by zero"
    assert quick(text) == expected


@given(st.text(st.sampled_from("0123456789+-*/%() x"), max_size=60))
@settings(max_examples=300)
def test_any_text_has_an_answer(text: str) -> None:
    told = quick(text)
    assert told.startswith("error: ") or told.lstrip("-").isdigit()


@pytest.mark.parametrize(
    "text", ["*".join(["9" * 1000] * 3), "2**4000*2**4000", "+".join(["2**4095"] * 3), "7**99999999"]
)
def test_no_number_grows_beyond_its_bound(text: str) -> None:
    assert quick(text) == "error: the number is too large"


def test_the_tool_reads_and_writes_tokens() -> None:
    tool = CalculatorTool(lambda turn: "".join(map(chr, turn)), lambda text: [ord(letter) for letter in text])
    told = asyncio.run(tool.call(CallTool(0, 0, 0, 0, 0), [ord(letter) for letter in "6*7"]))
    assert told == [ord("4"), ord("2")]


@given(st.text(st.sampled_from(ALPHABET), max_size=20), st.integers(200, 40_000))
def test_characters_come_back_as_they_were_spelled(text: str, vocabulary: int) -> None:
    spelling = Spelling(vocabulary)
    ids = spelling.write(text)
    assert spelling.read(ids) == text
    assert all(0 <= number < vocabulary for number in ids)


@given(st.lists(st.integers(0, 40_000), max_size=20), st.integers(2, 40_000))
def test_any_ids_can_be_read_and_every_answer_written(ids: list[int], vocabulary: int) -> None:
    spelling = Spelling(vocabulary)
    assert len(spelling.read(ids)) == len(ids)
    told = spelling.fault(Served("timeout", None, "no answer"))
    assert all(0 <= number < vocabulary for number in told)


def test_a_spelled_turn_is_evaluated() -> None:
    spelling = Spelling(1000)
    told = asyncio.run(spelling.calculator().call(CallTool(0, 0, 0, 0, 0), spelling.write("(2+3)*4")))
    assert spelling.read(told) == "20"


# -- bounds -------------------------------------------------------------------------------------------


def test_too_much_input_is_refused_before_anything_starts() -> None:
    with pytest.raises(SandboxError, match="found 5000 bytes of input; allowed: 4096"):
        answer("1" * 5000)


def test_the_program_sees_an_empty_folder_and_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSIM_SECRET", "key")
    told = run(
        "import os\nprint(os.listdir(), [name for name in os.environ if name != 'LC_CTYPE'], sys_path)".replace(
            "sys_path", "[place for place in __import__('sys').path if 'site-packages' in place]"
        )
    )
    assert told == b"[] [] []\n"


def test_files_cannot_grow() -> None:
    program = (
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "try:\n    with open('f', 'wb', 0) as file: file.write(b'x')\nexcept OSError as error: print(error.strerror)"
    )
    assert run(program) == b"File too large\n"


def test_memory_is_bounded() -> None:
    assert run("try: bytearray(1 << 30)\nexcept MemoryError: print('no')") == b"no\n"


def test_a_flood_of_output_is_cut_off() -> None:
    with pytest.raises(SandboxError, match="more than 4096 bytes of output"):
        run("while True: print('x' * 1000)")


def test_computing_for_ever_ends_with_the_processor_time() -> None:
    with pytest.raises(SandboxError, match="the program ended with code -"):
        run("while True: pass", bounds=Bounds(wall_seconds=60, cpu_seconds=1))


def test_a_program_that_fails_is_a_failure() -> None:
    with pytest.raises(SandboxError, match="ended with code 1"):
        run("raise SystemExit(1)")


def alive(process: int) -> bool:
    """Whether it runs; one that is dead but unread does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(process: int) -> bool:
    for _ in range(500):
        if not alive(process):
            return True
        time.sleep(0.01)
    return False


HANGS = """
import os, pathlib, time
child = os.fork()
if child: pathlib.Path(os.readlink('/proc/self/fd/0'))
os.write(1, b'%d ' % os.getpid())
time.sleep(600)
"""


class Pids(Sandbox):
    """Notes the processes that the program tells of."""

    async def _output(self, process: asyncio.subprocess.Process, data: bytes) -> bytes:
        assert process.stdout is not None
        self.told = b""
        while self.told.count(b" ") < 2:
            self.told += await process.stdout.read(1)
        return await super()._output(process, data)


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit on processes, which root does not have, forbids the child")
@pytest.mark.parametrize("how", ["late", "cancelled"])
def test_a_program_that_hangs_is_killed_with_its_children(how: str) -> None:
    sandbox = Pids(HANGS, Bounds(wall_seconds=1.5 if how == "late" else 60))

    async def main() -> None:
        task = asyncio.ensure_future(sandbox.run(b""))
        if how == "cancelled":
            while getattr(sandbox, "told", b"").count(b" ") < 2:
                await asyncio.sleep(0.01)
            task.cancel()
        await task

    with pytest.raises(SandboxError if how == "late" else asyncio.CancelledError):
        asyncio.run(main())
    found = [int(number) for number in sandbox.told.split()]
    assert len(found) == 2
    assert all(gone(number) for number in found)


class Started(Sandbox):
    """Notes its process."""

    async def _output(self, process: asyncio.subprocess.Process, data: bytes) -> bytes:
        self.process = process.pid
        return await super()._output(process, data)


@pytest.mark.parametrize("program", [CALCULATOR, "while True: print('x' * 1000)", "raise SystemExit(1)"])
def test_no_process_is_left_behind(program: str) -> None:
    sandbox = Started(program)
    with suppress(SandboxError):
        asyncio.run(sandbox.run(b"1+1"))
    assert not Path(f"/proc/{sandbox.process}").exists()
