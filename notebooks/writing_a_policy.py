# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5. Writing a policy, and racing it
# A policy is a composition of small decisions. Here is one of your own for admission (when may a group begin?), and
# one for allocation (how many samples, for which prompts?), each against what is there. docs/develop has the
# protocols.

# %%
from pathlib import Path

SCENARIO = "../scenarios/quickstart.yaml"
RACE = "../scenarios/allocation/race.yaml"
SETTINGS = {"run.replications": 2, "run.steps": 6}
LIMITS = (16, 48, 96)
MORE, TARGET, RACE_STEPS = 4, 0.55, 60
FIGURES = Path("out/writing_a_policy")

# %% [markdown]
# ## The parts
# A part is a frozen dataclass: its fields are its parameters. It sees what a live system could see, and nothing else;
# it runs unchanged on real engines. The module is looked for in the current directory.

# %%
PARTS = '''
from dataclasses import dataclass
from typing import ClassVar

from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class Trickle:
    """Admit a group whenever fewer than ``limit`` are open, at most ``ahead`` batches before the trainer."""

    limit: int = 48
    ahead: int = 2
    unit: ClassVar[str] = "group"

    def start(self, shape):
        return self

    def capacity(self, view):
        left = (view.steps_done + self.ahead) * view.shape.prompts_per_step - view.started_groups
        return min(self.limit - view.open_groups, left), "trickle"


@dataclass(frozen=True, slots=True)
class SecondChance:
    """``more`` samples for prompts that failed in all of the first ones; groups that agree are thrown away."""

    more: int = 4
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape):
        return self

    def members(self, view, group):
        return Size(view.shape.group_size, view.shape.group_size)

    def extend(self, view):
        return [(number, self._further(view, group)) for number, group in view.waiting_for_wave.items()]

    def _further(self, view, group):
        first = group.ended == view.shape.group_size
        return self.more if first and not any(group.rewards) else 0

    def observe(self, view, group):
        """That a part has this method says that it decides by rewards."""

    def rejects(self, view, group):
        return len(set(group.rewards)) < 2
'''
Path("my_parts.py").write_text(PARTS)

# %% [markdown]
# ## Admission: how many groups at once?
# Against NeMo-RL's one step off-policy, with common random numbers.

# %%
import rlsim
from rlsim.results.plots import run as plots

FIGURES.mkdir(parents=True, exist_ok=True)
SETTINGS |= {"sensitivity": [], "published": []}
mine = {
    f"trickle, {limit} open": {"policy.parts": {"admission": {"use": "my_parts:Trickle", "limit": limit}}}
    for limit in LIMITS
}
told = rlsim.compare(rlsim.variants(SCENARIO, {"one step off": {}} | mine, SETTINGS, arm="one-off 8+8"))
print(rlsim.text(told))

# %%
steps = {arm.name: arm.estimate("step_seconds") for arm in told.arms}
figure = plots.step_time_bars(steps, {}, "Step time with an admission of your own")
plots.save_figure(figure, FIGURES / "step_time.png")
figure

# %% [markdown]
# The staleness table above says what the shorter step costs. Where the engines idle says whether `limit` is too
# small:

# %%
figure = plots.utilisation_bars({arm.name: [run.metrics for run in arm.records] for arm in told.arms})
plots.save_figure(figure, FIGURES / "utilisation.png")
figure

# %% [markdown]
# ## Allocation: a second chance for prompts that failed
# Raced to a success rate against uniform sampling and dynamic sampling (DAPO). What a batch is worth is a statistical
# model and an ESTIMATE (docs: learning model). On the command line: `rlsim race scenarios/allocation/race.yaml --to
# 0.55`.

# %%
strategies = {
    "uniform": {},
    "dynamic sampling": {"policy.parts": {"allocation": {"use": "dapo"}}},
    "second chance": {"policy.parts": {"allocation": {"use": "my_parts:SecondChance", "more": MORE}}},
}
of_race = SETTINGS | {"run.steps": RACE_STEPS}
raced = rlsim.race(rlsim.variants(RACE, strategies, of_race, arm="uniform"), TARGET)
print(rlsim.text(raced))

# %%
from rlsim.results.plots.scaling import progress_curves

runs = {arm.name: [record.progress for record in arm.records] for arm in raced.arms}
figure = progress_curves(runs, TARGET, "Allocation strategies raced (ESTIMATE)")
plots.save_figure(figure, FIGURES / "progress.png")
figure
