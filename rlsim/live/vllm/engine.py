"""One replica on real vLLM: an ``AsyncLLM`` here, its EngineCore in a process of its own, on GPUs or on a CPU.

Which tokens were made by which weights is the engine's own answer, and so is how many tokens an aborted call had got
when it ended: the scheduler inside EngineCore notes both its steps and the ends of calls
(:mod:`rlsim.live.vllm.step_log`).
Nothing here imports vllm or torch before an engine starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rlsim.core.errors import RlsimError
from rlsim.core.ticks import Ticks, to_seconds
from rlsim.engine.requests import Request
from rlsim.live.protocols import Call, CallOutput, EngineLostError, Marked, Now, Record, Weights
from rlsim.live.running import MarkTeller
from rlsim.live.vllm.pace import write_law
from rlsim.live.vllm.setup import (
    EngineSetup,
    engine_config,
    prepare_environment,
    require_vllm,
    sampling,
    segments,
    take,
    take_draft,
)
from rlsim.live.vllm.step_log import (
    TICKS_PER_NANOSECOND,
    CallEndReader,
    EngineFiles,
    EngineReport,
    StepRow,
    forget_steps,
    last_end_ns,
    read_steps,
    report,
    windows,
    zero_ns,
)

ASK_AGAIN_SECONDS = 0.002
"""Interval of reading the engine's log."""
WARM_TOKENS = 32
"""Tokens of the prompt and the response of an engine's first call: its first steps take seconds."""
CPU_EXIT_SECONDS = 1.0
"""Time for a process without a device to end by itself."""
PACED_NICENESS = -10
LAST_ABORT_SECONDS = 10.0
"""Time for an engine to end its calls when the run is over."""
_environment = threading.Lock()
"""Engines import vLLM one after another; those that see GPUs of their own start so too, as their processes inherit this
one's environment."""

T = TypeVar("T")


class VllmEngine:
    """A replica; ``work`` is a folder of its own for the engine's log."""

    def __init__(self, replica: int, setup: EngineSetup, now: Now, work: Path) -> None:
        require_vllm()
        self.replica, self.setup = replica, setup
        self._now, self._files = now, EngineFiles(work)
        self._ends = CallEndReader(self._files)
        self._numbers = itertools.count()
        self._names: dict[int, str] = {}
        """Calls under way by sample, as the engine knows them."""
        self._arriving: set[int] = set()
        """Of these, calls on their way to the engine."""
        self._served = 0
        """Version that the engine serves, by its last answer."""
        self._sentinels: list[int] = []
        self._marks = MarkTeller()
        self._llm: Any = None
        self._lost: asyncio.Future[None]

    def set_marked(self, marked: Marked) -> None:
        """Tell ``marked`` when a call comes to one of its marks."""
        self._marks.marked = marked

    async def start(self) -> None:
        """Start the engine's process and load the model; version 0."""
        loop = asyncio.get_running_loop()
        self._lost = loop.create_future()
        self._files.folder.mkdir(parents=True, exist_ok=True)
        if self.setup.law is not None:
            write_law(self.setup.law, self._files.law)
        prepare_environment(self.setup.threads if self.setup.device == "cpu" else None)
        self._llm = await asyncio.to_thread(self._create)
        for process in self._processes():
            self._sentinels.append(process.sentinel)
            loop.add_reader(process.sentinel, self._on_loss)
        for process_id in self.process_ids:
            # Set core and priority of all threads there are by now; later ones inherit them.
            for thread in os.listdir(f"/proc/{process_id}/task"):
                with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended since, or we may not
                    if self.setup.core is not None:
                        os.sched_setaffinity(int(thread), {self.setup.core})
                    if self.setup.law is not None:  # what has a pace to keep goes before what hands out tokens
                        os.setpriority(os.PRIO_PROCESS, int(thread), PACED_NICENESS)
        await self._unless_lost(self._prepare())

    def _create(self) -> Any:
        with _environment:
            from vllm.config import WeightTransferConfig
            from vllm.v1.engine.async_llm import AsyncLLM

            from rlsim.live.vllm.weights import BACKEND

            extension = "rlsim.live.vllm.worker.WorkerExtension"
            transfer = WeightTransferConfig(backend=BACKEND)
            config = engine_config(
                self.setup, self._files, worker_extension_cls=extension, weight_transfer_config=transfer
            )
            if self.setup.gpus:
                with _visible(self.setup.gpus):
                    return AsyncLLM.from_vllm_config(config, disable_log_stats=True)
        return AsyncLLM.from_vllm_config(config, disable_log_stats=True)

    async def _prepare(self) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        await self._llm.init_weight_transfer_engine(WeightTransferInitRequest(init_info={}))
        await self._llm.update_weight_version(str(self._served))
        tokens = min(WARM_TOKENS, self.setup.max_model_len // 2)
        first = Call(0, range(1, tokens + 1), tokens, True, 0, Request(0, 0, tokens, tokens, tokens))
        await self._collect(first, self._name(0), CallOutput())  # its steps are none of the run's
        await self._drop_kv()
        forget_steps(self._files)

    def _name(self, sample: int) -> str:
        """Name of a call for the engine; vLLM appends a dash and something random."""
        return f"s{sample}c{next(self._numbers)}"

    def _processes(self) -> list[Any]:
        return list(self._llm.engine_core.resources.engine_manager.processes)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Ids of EngineCore's processes."""
        return tuple(process.pid for process in self._processes())

    # -- loss -----------------------------------------------------------------------------------------

    def _on_loss(self) -> None:
        for sentinel in self._sentinels:
            asyncio.get_running_loop().remove_reader(sentinel)
        self._sentinels.clear()
        if not self._lost.done():
            self._lost.set_result(None)

    async def _unless_lost(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``; ``EngineLostError`` as soon as the process is gone, whatever vLLM notices."""
        from vllm.v1.engine.exceptions import EngineDeadError

        task = asyncio.ensure_future(work)
        try:
            both: set[asyncio.Future[Any]] = {task, self._lost}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        except EngineDeadError as error:
            raise EngineLostError(f"the engine of replica {self.replica} stopped") from error
        finally:
            task.cancel()
        raise EngineLostError(f"the process of the engine of replica {self.replica} is gone")

    # -- calls ----------------------------------------------------------------------------------------

    async def generate(self, call: Call, output: CallOutput) -> None:
        """Run a call to its end; if the engine is lost, ``output`` has what had arrived, by versions confirmed."""
        name = self._name(call.sample)
        self._names[call.sample] = name
        self._arriving.add(call.sample)
        try:
            await self._unless_lost(self._collect(call, name, output))
        finally:
            self._arriving.discard(call.sample)
            if self._names.get(call.sample) == name:
                del self._names[call.sample]

    async def _collect(self, call: Call, name: str, output: CallOutput) -> None:
        from vllm import TokensPrompt

        prompt = TokensPrompt(prompt_token_ids=list(call.context))
        priority = call.priority if self.setup.scheduling_policy == "priority" else 0
        # AsyncLLM.generate does the same, but does not say when the call has been sent
        queue = await self._llm.add_request(name, prompt, sampling(self.setup, call), priority=priority)
        self._arriving.discard(call.sample)
        request_output = None
        while request_output is None or not request_output.finished:
            request_output = queue.get_nowait() or await queue.get()
            piece = request_output.outputs[0]
            self._take(request_output, call, output)
        if piece.finish_reason not in ("stop", "length", "abort"):
            raise RlsimError(f"vLLM ended a call with {piece.finish_reason!r}")
        if piece.weight_versions is not None:
            output.segments = segments(piece.weight_versions)
        while (end := self._ends.take(name)) is None:
            await asyncio.sleep(ASK_AGAIN_SECONDS)
        output.undelivered_tokens = end.sampled_tokens - len(output.tokens)
        output.reason = piece.finish_reason

    async def holds(self, samples: Sequence[int]) -> None:
        """Return once the calls have been sent: the engine takes what comes in order, paused or not."""
        while self._arriving.intersection(samples) and not self._lost.done():
            await asyncio.sleep(0)

    def _take(self, request_output: Any, call: Call, output: CallOutput) -> None:
        piece, before = request_output.outputs[0], len(output.tokens)
        take_draft(request_output, call, output)
        if not piece.token_ids:
            return
        if output.first_token_at < 0:
            output.first_token_at = self._now()
        take(piece, output, self._served)
        self._marks.grown(call, output, before, request_output.finished)

    async def abort(self, samples: Sequence[int]) -> None:
        """End calls; returns when they have ended, so not before the step under way has."""
        names = {self._names[sample] for sample in samples if sample in self._names}
        while names and not self._lost.done():
            # Asked again, as a call may not have reached vLLM yet.
            await self._unless_lost(self._llm.abort(names))
            await asyncio.sleep(ASK_AGAIN_SECONDS)
            names &= set(self._names.values())

    # -- weights --------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Let the step under way end and no further one begin."""
        await self._unless_lost(self._llm.pause_generation(mode="keep", clear_cache=False))

    def last_step_end(self) -> Ticks:
        """End of the last step by the engine's own clock: vLLM answers a pause some 20 ms after it."""
        end_ns = last_end_ns(self._files)
        return -1 if end_ns is None else (end_ns - zero_ns(self._now)) * TICKS_PER_NANOSECOND

    async def resume(self) -> None:
        await self._unless_lost(self._llm.resume_generation())

    async def load(self, weights: Weights, reset: bool) -> int:
        """Take a file in place, or, where no model is trained, the engine's own weights once more.

        An engine with ``dummy`` weights has none of its own: its version is set without any being moved. It refuses a
        file with ``RlsimError``.
        """
        files = [weights.file] if weights.file is not None else sorted(self.setup.model.glob("*.safetensors"))
        await self._unless_lost(self._load(weights, files, reset))
        self._served = int(await self._unless_lost(self._llm.get_weight_version()))
        return self._served

    async def _load(self, weights: Weights, files: Sequence[Path], reset: bool) -> None:
        if self.setup.load_format == "dummy" and weights.file is not None:
            raise RlsimError("an engine with dummy weights cannot take a file: start it with load_format auto")
        if self.setup.load_format == "dummy":
            await self._llm.update_weight_version(str(weights.version))
        else:
            await self._transfer(weights.version, files)
        if reset:
            await self._drop_kv()

    async def _transfer(self, version: int, files: Sequence[Path]) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        await self._llm.start_weight_update()
        for file in files:
            await self._llm.update_weights(WeightTransferUpdateRequest(update_info={"path": str(file.resolve())}))
        await self._llm.finish_weight_update(str(version))

    async def _drop_kv(self) -> None:
        if not await self._llm.reset_prefix_cache(reset_running_requests=True):
            raise RlsimError(f"the engine of replica {self.replica} kept its KV")

    async def sleep(self) -> None:
        """Drop the KV; on a GPU give back its memory and that of the weights, which wait in the host's.

        vLLM on a CPU has no sleep: nothing is given back there.
        """
        await self._unless_lost(self._drop_kv())
        if self.setup.device == "cuda":
            await self._unless_lost(self._llm.collective_rpc("sleep", kwargs={"level": 1}))

    async def wake(self) -> None:
        """On a GPU, take the memory back. The workers are asked directly: vLLM's own call would resume as well."""
        if self.setup.device == "cuda":
            await self._unless_lost(self._llm.collective_rpc("wake_up", kwargs={"tags": None}))

    async def log_probs_of(self, tokens: Sequence[int]) -> list[float]:
        """Log-probability of each token but the first under the weights that are served; not while paused."""
        return await self._unless_lost(self._score(tokens))

    async def _score(self, tokens: Sequence[int]) -> list[float]:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        kind = RequestOutputKind.FINAL_ONLY
        sampling = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False, output_kind=kind)
        prompt, name = TokensPrompt(prompt_token_ids=list(tokens)), f"score{next(self._numbers)}"
        entries: Any = None
        async for output in self._llm.generate(prompt, sampling, name):
            entries = output.prompt_logprobs
        return [entry[token].logprob for entry, token in zip(entries[1:], tokens[1:], strict=True)]

    # -- the end --------------------------------------------------------------------------------------

    async def close(self) -> Record:
        """End calls, and the engine's process; the record of its step log, a lost engine's too.

        Calls under way are aborted, so that their count is exact; an engine that does not answer is ended all the same.
        """
        if self._llm is not None:
            with contextlib.suppress(TimeoutError, EngineLostError):
                await asyncio.wait_for(self.abort(list(self._names)), LAST_ABORT_SECONDS)
                await asyncio.sleep(0)
            self._on_loss()
            llm, self._llm = self._llm, None
            if llm.output_handler is not None:
                llm.output_handler.cancel()
            await asyncio.to_thread(llm.shutdown, CPU_EXIT_SECONDS if self.setup.device == "cpu" else None)
            llm.shutdown = lambda: None  # its finaliser calls it again, after the interpreter has taken vLLM apart
        steps = self._steps()
        sums = report(steps)
        rows = windows(self.replica, steps, zero_ns(self._now))
        worst = to_seconds(sums.worst_late_ticks)
        return Record(rows, sums.sampled_tokens, sums.preemptions, sums.late_steps, worst)

    def report(self) -> EngineReport:
        """Sums over the steps so far: tokens, preemptions, and how well a paced engine kept its pace."""
        return report(self._steps())

    def _steps(self) -> list[StepRow]:
        return read_steps(self._files)


@contextlib.contextmanager
def _visible(gpus: tuple[int, ...]) -> Iterator[None]:
    """Let processes that are started meanwhile see these GPUs."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
