# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # Four ways to train Llama-3.1-8B on 16 H100
# Edit a number in the next cell and run the notebook again: it takes seconds.

# %%
from pathlib import Path

SCENARIO = "scenarios/quickstart.yaml"
SETS = ["run.replications=2", "run.steps=4", "workload.response_tokens.sigma=0.8"]
FIGURES = Path("out/first_comparison")

# %%
from rlsim.planning.comparison import run_comparison
from rlsim.planning.present import as_text
from rlsim.scenario.source import load

comparison = run_comparison(load(SCENARIO, sets=SETS), workers=1)
print(as_text(comparison))

# %% [markdown]
# ## Step times, with what was measured beside them

# %%
from rlsim.results.plots_arms import step_time_bars, utilisation_bars
from rlsim.results.style import save_figure

steps = {arm.name: arm.estimate("step_seconds") for arm in comparison.arms}
published = {arm.name: [row.step_seconds for row in arm.plan.scenario.published] for arm in comparison.arms}
FIGURES.mkdir(parents=True, exist_ok=True)
figure = step_time_bars(steps, published, comparison.name)
save_figure(figure, FIGURES / "step_time.png")
figure

# %% [markdown]
# ## What the GPUs did with their time

# %%
uses = {arm.name: [outcome.metrics for outcome in arm.outcomes] for arm in comparison.arms}
figure = utilisation_bars(uses)
save_figure(figure, FIGURES / "utilisation.png")
figure
