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
# # 4. Asynchronous or not, and how stale?
# The same 16 GPUs, shared or split, with bounds on staleness from none to wide. How much of a step is won, and what
# is left of it once a stale batch teaches less?

# %%
from pathlib import Path

SCENARIO = "../scenarios/quickstart.yaml"
SETTINGS = {"run.replications": 3, "run.steps": 8, "run.warmup_steps": 3, "workload.prompts_per_step": 32}
BOUNDS = (0, 1, 2, 4)
TOLERANCE_UPDATES, TARGET = 4, 0.5
FIGURES = Path("out/async_or_not")

# %%
import rlsim
from rlsim.results.plots import run as plots
from rlsim.results.plots.scaling import StalePoint

FIGURES.mkdir(parents=True, exist_ok=True)
SETTINGS |= {"sensitivity": [], "published": [], "trainer.updates_per_step": 2}
bounds = {f"eta {bound}": {"policy.max_head_offpolicyness": bound} for bound in BOUNDS}


def arms(settings):
    return (
        rlsim.variants(SCENARIO, {"synchronous": {}}, settings, arm="on-policy colocated")
        | rlsim.variants(SCENARIO, bounds, settings, arm="bounded staleness 8+8")
        | rlsim.variants(SCENARIO, {"one step off": {}}, settings, arm="one-off 8+8")
    )


told = rlsim.compare(arms(SETTINGS))
print(rlsim.text(told))

# %% [markdown]
# ## What staleness buys in time
# Every point is a bound (AReaL's eta, which counts admissions); the horizontal axis is what the samples really were
# behind. Where the curve is flat, more staleness buys nothing: the trainer or the engines are busy all the time.

# %%
points = {
    arm.name: StalePoint(
        arm.name,
        arm.estimate("start_lag_mean"),
        max(arm.values("start_lag_max")),
        told.speedup_over_first(arm),
    )
    for arm in told.arms
}
series = {"bounded staleness": [points[name] for name in bounds], "one step off": [points["one step off"]]}
figure = plots.speedup_over_staleness(series, "synchronous, shared GPUs")
plots.save_figure(figure, FIGURES / "speedup.png")
figure

# %% [markdown]
# ## What of it is left after learning
# An ESTIMATE: a statistical model in which a batch up to `TOLERANCE_UPDATES` updates old teaches as a fresh one does,
# and an older one less (docs: learning model). Put in what your method tolerates. A small batch, so that this takes
# seconds.

# %%
LEARNING = SETTINGS | {
    "run.steps": 48, "run.replications": 2, "workload.prompts_per_step": 16, "workload.group_size": 8,
    "learning.curve.half_updates": 48, "learning.staleness.tolerance_updates": TOLERANCE_UPDATES,
}  # fmt: skip
raced = rlsim.race(arms(LEARNING), TARGET)
print(rlsim.text(raced))

# %%
from rlsim.results.plots.scaling import progress_curves

runs = {arm.name: [record.progress for record in arm.records] for arm in raced.arms}
figure = progress_curves(runs, TARGET, f"Progress, if {TOLERANCE_UPDATES} updates of lag are harmless (ESTIMATE)")
plots.save_figure(figure, FIGURES / "progress.png")
figure
