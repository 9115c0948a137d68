"""Short windows, set by occasional probes of full length: ADWIN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.drift import Drifts
from rlsim.policies.allocation.recent import Recent
from rlsim.policies.allocation.whole_groups import WholeGroups, every
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import GO_ON, Verdict


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

    def start(self, shape: Shape) -> _Windowed:
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

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
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
