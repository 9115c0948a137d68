"""How many optimizer steps lie between the trainer's weights and those that made a sample."""

from __future__ import annotations

from rlsim.core.events import Segments


class Updates:
    """Steps behind the trainer's weights, and behind each published version."""

    def __init__(self) -> None:
        self.steps = 0
        self._published = [0]

    def trained(self) -> None:
        """A step is complete."""
        self.steps += 1

    def published(self, accepted: bool) -> None:
        """The replicas serve the trainer's weights as the next version; or the trainer goes back to theirs."""
        if accepted:
            self._published.append(self.steps)
        else:
            self.steps = self._published[-1]

    def token_steps(self, segments: Segments) -> int:
        """Sum over tokens of the steps behind the version that made them."""
        return sum(tokens * self._published[version] for version, tokens in segments)
