"""A fit of the learning model as text, and as keys of a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from calibration.rewards.fit import LearningFit


def report_lines(fit: LearningFit) -> Iterator[str]:
    """What was found, how sure it is, and what it rests on."""
    settings, joint = fit.settings, "effect.information_exponent" in fit.parameters
    yield f"{fit.groups} groups; fitted on {fit.prompts} prompts, judged by the others"
    for key, parameter in fit.parameters.items():
        yield f"learning.{key:<25} {parameter.value:>9.4g}   95 % interval {parameter.low:.4g} to {parameter.high:.4g}"
    if "population.persistence" not in fit.parameters:
        yield "learning.population.persistence   not told: no prompt was visited twice, or none after its drift"
    if "curve.half_updates" not in fit.parameters:
        yield "learning.curve.half_updates       not told: success did not rise"
    if not joint and settings.gains == "alike" and "effect.transfer" not in fit.parameters:
        yield "learning.effect.transfer          not told: no prompt came back, or 0 is as likely as 1; 1 is taken"
    yield f"held out, nats a sample: {fit.loss:.4f}; with one success rate for all: {fit.loss_of_one_rate:.4f}"
    if fit.lengths is None:
        yield "learning.lengths                  not told: no column tokens"
    else:
        yield (
            f"held out, lengths: {fit.lengths.explained:.0%} of the variance of the mean tokens of a group's failures "
            "and of its successes; as logged, after any cap"
        )
    yield (
        f"taken as known: asymptote {settings.asymptote:g}, steepness {settings.steepness:g}, drift_versions "
        f"{settings.drift_versions:g}, {settings.updates_per_version:g} updates a version, gains {settings.gains}, "
        + (
            f"breadth_exponent {settings.breadth_exponent:g}, on-policy"
            if joint
            else f"each uniform and on-policy, information_exponent {settings.information_exponent:g}"
        )
    )


def write_overlay(fit: LearningFit, out: Path) -> None:
    """An overlay for ``--overlay``, through a temporary name."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    part = out.with_name(out.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.writelines(f"# {line}\n" for line in ("An estimate: fitted to the rewards of runs.", *report_lines(fit)))
        yaml.dump(fit.overrides(), file)
    part.replace(out)
