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
# # 6. Anatomy of the long tail
# A synchronous step waits for its longest response. How long is the tail, where does its time go, and what helps?

# %%
from pathlib import Path

SCENARIO = "../scenarios/quickstart.yaml"
SETTINGS = {"run.replications": 3, "run.steps": 4, "workload.response_tokens.cap_tokens": 8192}
SIGMAS = (0.4, 0.8, 1.2)
FIGURES = Path("out/long_tail")

# %%
import rlsim
from rlsim.results.plots import run as plots

FIGURES.mkdir(parents=True, exist_ok=True)
SETTINGS |= {"sensitivity": [], "published": [], "switching.wake_seconds": 2.0}
spreads = {f"sigma {sigma:g}": {"workload.response_tokens.sigma": sigma} for sigma in SIGMAS}
synchronous = rlsim.variants(SCENARIO, spreads, SETTINGS, arm="on-policy colocated")

# %% [markdown]
# ## The lengths
# The mean is the same for every sigma; only the spread differs. A mean and a cap do not fix it, and most logs give no
# more.

# %%
widest = list(synchronous)[-1]
tables = rlsim.tables(rlsim.simulate(synchronous[widest]))
figure = plots.length_histogram(tables, f"Response lengths, {widest}")
plots.save_figure(figure, FIGURES / "lengths.png")
figure

# %% [markdown]
# ## A step in time
# The engines empty while the last samples run on: the area above the curve is bought and not used.

# %%
figure = plots.running_requests(tables, f"Samples in flight, {widest}")
plots.save_figure(figure, FIGURES / "in_flight.png")
figure

# %%
figure = plots.timeline(tables, f"Timeline, {widest}")
plots.save_figure(figure, FIGURES / "timeline.png")
figure

# %% [markdown]
# ## What the spread costs
# The step time with the mean length held fixed, 95 % intervals over replications. (The framework's fixed overhead of
# the quickstart is taken out here, so that the tail shows.)

# %%
told = rlsim.compare(synchronous)
figure = plots.step_time_bars(
    {arm.name: arm.estimate("step_seconds") for arm in told.arms}, {}, "Step time by the spread of lengths, synchronous"
)
plots.save_figure(figure, FIGURES / "step_time.png")
for arm in told.arms:
    tail = arm.estimate("tail_share")
    print(f"{arm.name}: {tail.mean:.0%} ± {tail.high - tail.mean:.0%} of the generation time after 90 % have ended")
figure

# %% [markdown]
# ## What helps
# Three ways round the tail, each at the widest spread: generate more groups than are needed and keep the unfinished
# for later, one step off-policy, and bounded staleness.

# %%
worst = SETTINGS | spreads[widest]
ways = {
    "synchronous": "on-policy colocated",
    "over-sample, resume": "over-sample + partial",
    "one step off": "one-off 8+8",
    "bounded staleness": "bounded staleness 8+8",
}
same = {"workload.response_tokens.mean_tokens": 1019}
made = {name: rlsim.variants(SCENARIO, {name: same}, worst, arm=arm)[name] for name, arm in ways.items()}
told = rlsim.compare(made)
print(rlsim.text(told))

# %%
figure = plots.utilisation_bars({arm.name: [run.metrics for run in arm.records] for arm in told.arms})
plots.save_figure(figure, FIGURES / "utilisation.png")
figure
