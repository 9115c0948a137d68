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
# # 1. Four ways to train Llama-3.1-8B on 16 H100
# What does asynchrony buy, and how far is the prediction off what was measured? Edit a number in the next cell and
# run the notebook again: it takes seconds.

# %%
from pathlib import Path

SCENARIO = "../scenarios/quickstart.yaml"
SETTINGS = {"run.replications": 2, "run.steps": 4, "workload.response_tokens.sigma": 0.8}
FIGURES = Path("out/first_comparison")

# %%
import rlsim
from rlsim.results.plots import run as plots

FIGURES.mkdir(parents=True, exist_ok=True)
told = rlsim.compare(rlsim.load(SCENARIO, SETTINGS), out=FIGURES / "runs")
print(rlsim.text(told))

# %% [markdown]
# ## Step times, with what was measured beside them
# The bars are 95 % intervals over replications: the run is the unit, not the step. The first arm's measured number
# was used to fit the framework's fixed overhead; the second is a prediction, and its error is printed.

# %%
steps = {arm.name: arm.estimate("step_seconds") for arm in told.arms}
published = {arm.name: [arm.published.measured] for arm in told.arms if arm.published}
figure = plots.step_time_bars(steps, published, f"Step time, {told.name}")
plots.save_figure(figure, FIGURES / "step_time.png")
figure

# %% [markdown]
# ## What the GPUs did with their time
# Hatched is idle, by cause. A change can win at most what it removes here.

# %%
figure = plots.utilisation_bars({arm.name: [run.metrics for run in arm.records] for arm in told.arms})
plots.save_figure(figure, FIGURES / "utilisation.png")
figure

# %% [markdown]
# ## All of it as one page
# Tables, figures, where every cost comes from and the scenario as it was understood: send this file to somebody.

# %%
print(rlsim.report(FIGURES / "runs"))
