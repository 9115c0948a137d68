"""On-policy distillation: responses end where the teacher's signal on them is worth no more.

At a fixed length (ESR); at a window that occasional probes of full length set (ADWIN); where the overlap with the
teacher drops (Prune-OPD); once they repeat themselves (ShortOPD); or candidates are probed and the best go on (PG-
OPD).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.checks import at_least
from rlsim.core.commands import Watch
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.allocation.early_stopping import every
from rlsim.policies.allocation.estimators import Recent, WholeGroups
from rlsim.policies.hooks import GO_ON, Size, Verdict
from rlsim.policies.registry import part


@part("allocation", "esr")
@dataclass(frozen=True, slots=True)
class EarlyStoppingRollout(WholeGroups):
    """Responses end after a fixed number of tokens, because a teacher's signal decays on later ones.

    ESR, systems list entry 128; for distillation (``learning.distillation``): a cut response earns no reward. Its
    figure for the cap is not known to us.
    """

    response_tokens: int = 512
    """Tokens of a turn."""

    def start(self, shape: RunSizes) -> EarlyStoppingRollout:
        """Refuse a cap that leaves nothing."""
        at_least("response_tokens", self.response_tokens, 1)
        return self

    def cap_tokens(self, view: View, sample: Sample) -> int:
        """The same for every sample."""
        return self.response_tokens


class Drifts:
    """Counts readings below ``level``; ``needed`` in a row are a drift, so that one noisy reading is none."""

    def __init__(self, level: float, needed: int) -> None:
        self._level, self._needed = level, needed
        self._low: dict[int, int] = {}
        """Low readings in a row, by sample."""

    def read(self, sample: int, overlap: float) -> bool:
        """Take a reading; whether it is the one that makes a drift."""
        low = self._low.get(sample, 0) + 1 if overlap < self._level else 0
        self._low[sample] = low
        return low == self._needed

    def forget(self, sample: int) -> None:
        """It is done with."""
        self._low.pop(sample, None)


@part("allocation", "adwin")
@dataclass(frozen=True, slots=True)
class ProbedWindow:
    """Stand-in: responses end after a window that probes, which run to their end now and then, set.

    ADWIN, systems list entry 38 (its abstract). Ours: the first sample of every ``probe_groups``-th group is a
    probe; it agrees with the teacher up to its first drift (``consecutive`` low overlaps), or to its end; the window is
    a quantile of the recent agreements. A probe is a member of its group, which waits for it, so it runs in the
    background only under asynchronous policies; results of weights older than ``most_age_versions`` do not count.
    Numbers are ours, and what the teacher's passes cost is not priced.
    """

    window_tokens: int = 512
    """Until probes have told."""
    least_window_tokens: int = 128
    most_window_tokens: int = 8192
    probe_groups: int = 16
    every_tokens: int = 128
    """Between two looks at a probe."""
    drift_overlap: float = 0.65
    consecutive: int = 2
    probes_kept: int = 16
    agreeing_share: float = 0.5
    """The window is as long as the agreement that this share of the probes does not pass."""
    most_age_versions: int = 2

    def start(self, shape: RunSizes) -> _Windowed:
        """Refuse windows and probes that do not fit each other."""
        at_least("every_tokens", self.every_tokens, 2)
        at_least("probe_groups", self.probe_groups, 1)
        at_least("probes_kept", self.probes_kept, 1)
        at_least("consecutive", self.consecutive, 1)
        at_least("least_window_tokens", self.least_window_tokens, 1)
        at_least("window_tokens", self.window_tokens, self.least_window_tokens)
        at_least("most_window_tokens", self.most_window_tokens, self.window_tokens)
        return _Windowed(self)


class _Windowed(WholeGroups):
    signals: ClassVar[tuple[str, ...]] = ("teacher-overlap",)

    def __init__(self, spec: ProbedWindow) -> None:
        self._spec = spec
        self._window = spec.window_tokens
        self._drifts = Drifts(spec.drift_overlap, spec.consecutive)
        self._agreements = Recent(spec.probes_kept)
        self._parted: set[int] = set()
        """Probes that have drifted."""

    def cap_tokens(self, view: View, sample: Sample) -> int:
        """The window; none for a probe."""
        return 0 if self._is_probe(sample) else self._window

    def watch(self, view: View, sample: Sample) -> Watch | None:
        """The overlap along a probe."""
        marks = every(self._spec.every_tokens, self._spec.most_window_tokens)
        return Watch("teacher-overlap", marks) if self._is_probe(sample) else None

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Where a probe parts from the teacher, its agreement ends; the probe itself goes on."""
        if sample.sample not in self._parted and self._drifts.read(sample.sample, value):
            self._parted.add(sample.sample)
            self._tell(view, sample, tokens - self._spec.consecutive * self._spec.every_tokens)
        return GO_ON

    def observe(self, view: View, group: Group) -> None:
        """A probe that never parted agrees to its end."""
        for member in group.members:
            if self._is_probe(member):
                if member.sample not in self._parted:
                    self._tell(view, member, member.response_tokens)
                self._parted.discard(member.sample)
                self._drifts.forget(member.sample)

    def _is_probe(self, sample: Sample) -> bool:
        return sample.member == 0 and sample.group.group % self._spec.probe_groups == 0

    def _tell(self, view: View, probe: Sample, agreement_tokens: int) -> None:
        spec = self._spec
        if view.version - probe.group.version > spec.most_age_versions:
            return
        self._agreements.add(agreement_tokens)
        window = self._agreements.quantile(spec.agreeing_share)
        self._window = min(spec.most_window_tokens, max(spec.least_window_tokens, window))


@part("allocation", "pg-opd")
@dataclass(frozen=True, slots=True)
class ProbeGuided:
    """Stand-in: all candidates run to a probe length; the ``group_size`` that agree best with the teacher go on.

    PG-OPD, arXiv 2606.21994 (its abstract): the others stop at the prefix, and are trained on as far as they came. Our
    candidates wait for nobody, so that the first to come to the probe run on until the last has come; those that ended
    before count as going on. Numbers are ours. What the teacher's pass over the probes costs is not priced.
    """

    candidates: float = 2.0
    """As a multiple of ``group_size``."""
    probe_tokens: int = 256

    def start(self, shape: RunSizes) -> _Probing:
        """Refuse fewer candidates than are kept."""
        at_least("candidates", self.candidates, 1)
        at_least("probe_tokens", self.probe_tokens, 2)
        return _Probing(self)


class _Probing:
    aborts_surplus: ClassVar[bool] = True
    resizes: ClassVar[bool] = True
    signals: ClassVar[tuple[str, ...]] = ("teacher-overlap",)

    def __init__(self, spec: ProbeGuided) -> None:
        self._spec = spec
        self._overlaps: dict[int, dict[int, float]] = {}
        """By group and sample."""

    def members(self, view: View, group: Group) -> Size:
        """All candidates."""
        candidates = round(self._spec.candidates * view.shape.group_size)
        return Size(candidates, candidates)

    def watch(self, view: View, sample: Sample) -> Watch | None:
        """The overlap at the probe length, in the first turn."""
        return None if sample.turn else Watch("teacher-overlap", (self._spec.probe_tokens,))

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Once all have come to the probe length, or ended: the worst end here."""
        overlaps = self._overlaps.setdefault(sample.group.group, {})
        overlaps[sample.sample] = value
        unended = [member for member in sample.group.members if member.state not in ("scoring", "ended")]
        if any(member.sample not in overlaps for member in unended):
            return GO_ON
        room = max(0, view.shape.group_size - (len(sample.group.members) - len(unended)))
        return Verdict(truncated=self._ranked(sample.group, unended)[room:])

    def observe(self, view: View, group: Group) -> None:
        """Forget its overlaps."""
        self._overlaps.pop(group.group, None)

    def _ranked(self, group: Group, members: Sequence[Sample]) -> list[Sample]:
        """Best first; one that ended before the probe has nothing against it."""
        overlaps = self._overlaps.get(group.group, {})
        return sorted(members, key=lambda member: (-overlaps.get(member.sample, float("inf")), member.member))


@part("allocation", "prune-opd")
@dataclass(frozen=True, slots=True)
class PruneAtDrift:
    """Stand-in: a response ends where its overlap with the teacher drops; the window for all grows while few do.

    Prune-OPD, systems list entry 40 (its abstract). Ours: a drop is ``consecutive`` low readings in a row; the
    window grows after every ``prompts_per_step`` groups of which enough responses kept to the teacher. The method's
    monotone down-weighting behind a drift is not modelled, nor is what the teacher's passes cost. Numbers are ours.
    """

    window_tokens: int = 1024
    """At the start."""
    most_window_tokens: int = 8192
    every_tokens: int = 128
    """Between two looks."""
    drift_overlap: float = 0.65
    """A reading below it is low."""
    consecutive: int = 2
    compatible_share: float = 0.7
    """Of the responses without a drift, from which on the window grows."""
    growth: float = 1.5

    def start(self, shape: RunSizes) -> _Pruning:
        """Refuse windows that cannot grow."""
        at_least("every_tokens", self.every_tokens, 2)
        at_least("window_tokens", self.window_tokens, self.every_tokens)
        at_least("most_window_tokens", self.most_window_tokens, self.window_tokens)
        at_least("consecutive", self.consecutive, 1)
        at_least("growth", self.growth, 1)
        return _Pruning(self)


class _Pruning(WholeGroups):
    signals: ClassVar[tuple[str, ...]] = ("teacher-overlap",)

    def __init__(self, spec: PruneAtDrift) -> None:
        self._spec = spec
        self._window = spec.window_tokens
        self._drifts = Drifts(spec.drift_overlap, spec.consecutive)
        self._drifted: set[int] = set()
        self._groups = self._responses = self._sound = 0
        """Since the window was last looked at."""

    def cap_tokens(self, view: View, sample: Sample) -> int:
        """The window."""
        return self._window

    def watch(self, view: View, sample: Sample) -> Watch:
        """The overlap, every so many tokens."""
        return Watch("teacher-overlap", every(self._spec.every_tokens, self._spec.most_window_tokens))

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Whether this is a drift."""
        if not self._drifts.read(sample.sample, value):
            return GO_ON
        self._drifted.add(sample.sample)
        return Verdict(truncated=(sample,))

    def observe(self, view: View, group: Group) -> None:
        """Count what drifted; after a batch of groups the window may grow."""
        self._groups += 1
        self._responses += len(group.members)
        self._sound += sum(member.sample not in self._drifted for member in group.members)
        for member in group.members:
            self._drifts.forget(member.sample)
            self._drifted.discard(member.sample)
        if self._groups >= view.shape.prompts_per_step:
            spec = self._spec
            if self._sound >= spec.compatible_share * self._responses:
                self._window = min(spec.most_window_tokens, math.ceil(self._window * spec.growth))
            self._groups = self._responses = self._sound = 0


@part("allocation", "shortopd")
@dataclass(frozen=True, slots=True)
class EffectiveLength:
    """Stand-in: the next cap follows the recent lengths of responses before they repeat themselves.

    ShortOPD, systems list entry 28 (its abstract). Ours: an effective length ends at the last look that found no
    repetition; after every ``prompts_per_step`` groups the cap is ``headroom`` times the quantile ``covered_share`` of
    the recent ones, so it grows while many are cut. Numbers are ours, but for the 8,192 tokens of its fixed horizon.
    What the teacher's confirmation costs is not priced.
    """

    cap_tokens: int = 1024
    """At the start."""
    least_cap_tokens: int = 256
    most_cap_tokens: int = 8192
    every_tokens: int = 128
    """Between two looks."""
    covered_share: float = 0.9
    headroom: float = 1.25
    responses_kept: int = 1024

    def start(self, shape: RunSizes) -> _Following:
        """Refuse caps out of order, and a headroom that only shrinks them."""
        at_least("every_tokens", self.every_tokens, 2)
        at_least("least_cap_tokens", self.least_cap_tokens, 1)
        at_least("cap_tokens", self.cap_tokens, self.least_cap_tokens)
        at_least("most_cap_tokens", self.most_cap_tokens, self.cap_tokens)
        at_least("headroom", self.headroom, 1)
        at_least("responses_kept", self.responses_kept, 1)
        return _Following(self)


class _Following(WholeGroups):
    signals: ClassVar[tuple[str, ...]] = ("repetition",)

    def __init__(self, spec: EffectiveLength) -> None:
        self._spec = spec
        self._cap, self._groups = spec.cap_tokens, 0
        self._lengths = Recent(spec.responses_kept)
        self._repeats: dict[int, int] = {}
        """Tokens before the first look that found a repetition, by sample."""

    def cap_tokens(self, view: View, sample: Sample) -> int:
        """As set last."""
        return self._cap

    def watch(self, view: View, sample: Sample) -> Watch:
        """Repetition, every so many tokens."""
        return Watch("repetition", every(self._spec.every_tokens, self._spec.most_cap_tokens))

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Remember where a repetition was found first; the response goes on."""
        if value >= 0.5:
            self._repeats.setdefault(sample.sample, tokens - self._spec.every_tokens)
        return GO_ON

    def observe(self, view: View, group: Group) -> None:
        """Effective lengths; after a batch of groups, the next cap."""
        for member in group.members:
            self._lengths.add(self._repeats.pop(member.sample, member.response_tokens))
        self._groups += 1
        if self._groups % view.shape.prompts_per_step == 0:
            spec = self._spec
            wanted = math.ceil(spec.headroom * self._lengths.quantile(spec.covered_share))
            self._cap = min(spec.most_cap_tokens, max(spec.least_cap_tokens, wanted))
