"""Actors, as the run sees them: something that is asked, that reports, and that can be gone. Nothing else calls Ray's.

Ray is imported when an actor is made, not before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rlsim.core.errors import RlsimError

T = TypeVar("T")


class ActorGoneError(RlsimError):
    """An actor's process or node is gone."""


class Actor(Protocol):
    """An object in another process, maybe on another node."""

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Answer or error of a coroutine of it; ``ActorGoneError`` when it is gone."""
        ...

    def stream(self, method: str) -> AsyncIterator[Any]:
        """Items of an asynchronous generator of it, all that it had yielded before ``ActorGoneError``."""
        ...

    async def after(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a function where the actor was; ``ActorGoneError`` where that is gone too."""
        ...

    def end(self) -> None:
        """End its process."""
        ...


Hire = Callable[..., Actor]
"""Makes an actor of a class, given the class and its arguments."""


class Porter(Protocol):
    """Brings files from node to node; a value that actors get."""

    def node(self) -> str:
        """Name of the node it is asked on."""
        ...

    def pack(self, file: Path) -> Any:
        """Handle by which the bytes of a file of this node can be fetched."""
        ...

    async def fetch(self, packed: Any) -> Any:
        """The bytes, as a buffer."""
        ...


class RayPorter:
    """Through Ray's object store."""

    def node(self) -> str:
        """Ray's id of it."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def pack(self, file: Path) -> Any:
        """A reference in a list: as an argument of its own Ray would fetch it before it is asked for."""
        import numpy as np
        import ray

        return [ray.put(np.fromfile(file, dtype=np.uint8))]

    async def fetch(self, packed: Any) -> Any:
        return await packed[0]


class RayActor:
    """A Ray actor in one bundle of a placement group; it is not restarted, and nothing is asked twice."""

    def __init__(self, kind: type, arguments: tuple[Any, ...], cpus: int, gpus: int, bundle: Any) -> None:
        import ray

        self._bundle = bundle
        options = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": bundle}
        self._handle = ray.remote(kind).options(max_restarts=0, max_task_retries=0, **options).remote(*arguments)

    async def ask(self, method: str, *arguments: Any) -> Any:
        return await _answer(getattr(self._handle, method).remote(*arguments))

    async def stream(self, method: str) -> AsyncIterator[Any]:
        answers = getattr(self._handle, method).options(num_returns="streaming").remote()
        while (answer := await _answer(_next(answers))) is not None:
            yield await _answer(answer)

    async def after(self, work: Callable[..., T], *arguments: Any) -> T:
        """A task in the actor's bundle, which is free again; it takes nothing of it."""
        import ray

        task = ray.remote(work).options(num_cpus=0, max_retries=0, scheduling_strategy=self._bundle)
        done: T = await _answer(task.remote(*arguments))
        return done

    def end(self) -> None:
        """Kill it; its children end with it."""
        import ray

        ray.kill(self._handle)


async def _next(answers: Any) -> Any:
    """The next reference; None at the end."""
    return await anext(answers, None)


async def _answer(answer: Any) -> Any:
    """Ray's answer; errors of ours as they were raised, and all that says that an actor is gone as one."""
    from ray.exceptions import RayError, RayTaskError

    try:
        return await answer
    except RayTaskError as error:
        if isinstance(error.cause, RlsimError):
            raise error.cause from None
        raise
    except RayError as error:
        # the first line of many says what was lost, and the last says why
        lines = [line.strip() for line in str(error).split("\n") if line.strip()]
        cause = "; ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else "no reason was given"
        raise ActorGoneError(cause) from error
