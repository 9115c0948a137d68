"""Tools in processes of their own: a fixed program that gets data, in an empty folder, within limits.

What a model wrote is data on the standard input of the program, never a part of a command line, of a path or of code.
The limits bound mistakes and floods of a fixed program; they are no wall against code that somebody else wrote.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rlsim.core.commands import CallTool
from rlsim.core.errors import RlsimError


class SandboxError(RlsimError):
    """The program did not answer as it should: too late, too much, or it was stopped."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a program may use."""

    wall_seconds: float = 10.0
    """Real time, start of the interpreter included."""
    cpu_seconds: int = 2
    memory_bytes: int = 256 * 2**20
    """Address space."""
    input_bytes: int = 4096
    output_bytes: int = 4096


LIMITS = """
import resource
for what, most in (("CPU", {cpu}), ("AS", {memory}), ("FSIZE", 0), ("NPROC", 0), ("NOFILE", 16), ("CORE", 0)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + what), (most, most))
"""


class Sandbox:
    """A fixed Python program, started anew for every input."""

    def __init__(self, program: str, bounds: Bounds = Bounds()) -> None:
        """``program`` reads standard input and writes standard output; only the standard library is there."""
        self._bounds = bounds
        limits = LIMITS.format(cpu=bounds.cpu_seconds, memory=bounds.memory_bytes)
        self._command = (sys.executable, "-I", "-S", "-B", "-c", limits + program)

    async def run(self, data: bytes) -> bytes:
        """What the program writes; ``SandboxError`` when it breaks a bound or ends with an error."""
        bounds = self._bounds
        if len(data) > bounds.input_bytes:
            raise SandboxError(f"found {len(data)} bytes of input; allowed: {bounds.input_bytes}")
        try:
            with tempfile.TemporaryDirectory(prefix="rlsim-tool-") as empty:
                async with asyncio.timeout(bounds.wall_seconds):
                    return await self._answer(data, empty)
        except TimeoutError:
            raise SandboxError(f"no answer in {bounds.wall_seconds:g} s") from None

    async def _answer(self, data: bytes, folder: str) -> bytes:
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, stderr=nothing, cwd=folder, env={}, start_new_session=True
        )
        try:
            output = await self._output(process, data)
            code = await process.wait()
        finally:
            await _end(process)
        if code:
            raise SandboxError(f"the program ended with code {code}")
        return output

    async def _output(self, process: asyncio.subprocess.Process, data: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(data)
            await process.stdin.drain()
        process.stdin.close()
        output = b""
        while part := await process.stdout.read(self._bounds.output_bytes + 1):
            output += part
            if len(output) > self._bounds.output_bytes:
                raise SandboxError(f"more than {self._bounds.output_bytes} bytes of output")
        return output


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the program and whatever it has started, and wait until it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.stdout is not None
    while await process.stdout.read(1 << 16):
        pass  # what is left in the pipe, without which asyncio does not see the end
    await process.wait()


CALCULATOR = r"""
import re, sys

MOST_BITS = 4096
TOKEN = re.compile(r"\s*(\d+|\*\*|//|[-+*/%()])")


class Refused(Exception):
    pass


def tokens(text):
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise Refused("not integer arithmetic")
        found.append(match[1])
        at = match.end()
    return found[::-1]


def small(bits):
    if bits > MOST_BITS:
        raise Refused("the number is too large")


def power(base, exponent):
    if exponent < 0:
        raise Refused("a negative exponent")
    small(max(1, abs(base).bit_length()) * exponent if abs(base) > 1 else 1)
    return base ** exponent


def divided(left, sign, right):
    if not right:
        raise Refused("division by zero")
    if sign == "/" and left % right:
        raise Refused("not an integer")
    return left % right if sign == "%" else left // right


def sum_(rest):
    value = product(rest)
    while rest and rest[-1] in "+-":
        sign = rest.pop()
        right = product(rest)
        value = value + right if sign == "+" else value - right
        small(value.bit_length())
    return value


def product(rest):
    value = signed(rest)
    while rest and rest[-1] in ("*", "/", "//", "%"):
        sign = rest.pop()
        right = signed(rest)
        if sign == "*":
            small(value.bit_length() + right.bit_length())
            value *= right
        else:
            value = divided(value, sign, right)
    return value


def signed(rest):
    if rest and rest[-1] in "+-":
        return -signed(rest) if rest.pop() == "-" else signed(rest)
    value = atom(rest)
    if rest and rest[-1] == "**":
        rest.pop()
        return power(value, signed(rest))
    return value


def atom(rest):
    if not rest:
        raise Refused("it ends too early")
    token = rest.pop()
    if token == "(":
        value = sum_(rest)
        if not rest or rest.pop() != ")":
            raise Refused("a parenthesis is missing")
        return value
    if not token.isdigit():
        raise Refused("a number is missing")
    small(4 * len(token))
    return int(token)


def answer(text):
    try:
        rest = tokens(text)
        value = sum_(rest)
        return "error: something is left over" if rest else str(value)
    except Refused as fault:
        return "error: " + str(fault)
    except RecursionError:
        return "error: too many levels"


sys.stdout.write(answer(sys.stdin.buffer.read().decode("ascii", "replace")))
"""
"""Evaluates integer arithmetic by parsing it: + - * / // % ** and parentheses, numbers of at most 4096 bits."""


class Calculator:
    """Integer arithmetic in a process of its own."""

    def __init__(self, bounds: Bounds = Bounds()) -> None:
        self._sandbox = Sandbox(CALCULATOR, bounds)

    async def answer(self, text: str) -> str:
        """The value in digits, or ``error:`` and why; ``SandboxError`` when there is no answer at all."""
        return (await self._sandbox.run(text.encode("utf-8", "replace"))).decode("ascii")


class CalculatorTool:
    """The calculator as a tool of trajectories: what a turn says is evaluated."""

    def __init__(
        self, read: Callable[[Sequence[int]], str], write: Callable[[str], Sequence[int]], bounds: Bounds = Bounds()
    ) -> None:
        """``read`` and ``write`` turn token ids into text and back."""
        self._calculator, self._read, self._write = Calculator(bounds), read, write

    async def call(self, command: CallTool, turn: Sequence[int]) -> Sequence[int]:
        """The answer's tokens."""
        return self._write(await self._calculator.answer(self._read(turn)))
