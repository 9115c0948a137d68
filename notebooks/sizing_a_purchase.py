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
# # 2. Sizing a purchase
# A run of so many steps must be over in so many days, for so much money. How many GPUs, used how?

# %%
from pathlib import Path

SCENARIO = "../scenarios/quickstart.yaml"
SETTINGS = {"run.replications": 3, "run.steps": 4, "workload.prompts_per_step": 32, "trainer.updates_per_step": 2}
GPUS = (8, 16, 32, 64)
TRAINING_STEPS, DAYS, USD_PER_GPU_HOUR = 2000, 1.0, 2.5
FIGURES = Path("out/sizing_a_purchase")

# %% [markdown]
# ## Two ways to use them, four sizes
# *Shared*: all GPUs generate, then all train. *Split*: half generate while the other half train, one step behind. The
# batch stays as it is: more GPUs make a step shorter, not larger.

# %%
import rlsim
from rlsim.results.plots import run as plots

FIGURES.mkdir(parents=True, exist_ok=True)
SETTINGS |= {"cluster.price_usd_per_gpu_hour": USD_PER_GPU_HOUR, "sensitivity": [], "published": []}


def sizes(total, rollout):
    return {"cluster.gpus": total, "rollout.gpus": rollout, "trainer.gpus": rollout}


shared = {f"shared {n}": sizes(n, n) for n in GPUS}
split = {f"split {n // 2}+{n // 2}": sizes(n, n // 2) for n in GPUS}
told = rlsim.compare(
    rlsim.variants(SCENARIO, shared, SETTINGS, arm="on-policy colocated")
    | rlsim.variants(SCENARIO, split, SETTINGS, arm="one-off 8+8")
)

# %% [markdown]
# ## What a GPU still makes when there are more of them
# Training is priced by its FLOPs at one utilisation whatever the size: what more GPUs lose in communication is not in
# it. Large sizes are therefore flattered; measure yours (notebook 3), or lower `trainer.mfu` for them.

# %%
throughput = {"shared": {}, "split": {}}
for arm in told.arms:
    throughput[arm.name.split()[0]][arm.plan.scenario.cluster.gpus] = arm.estimate("tokens_per_second_per_gpu")
figure = plots.throughput_over_gpus(throughput, "Throughput against GPUs, Llama-3.1-8B on H100")
plots.save_figure(figure, FIGURES / "throughput.png")
figure

# %% [markdown]
# ## Days and money
# With 95 % intervals over replications. The first column says which sizes make the deadline even at the upper end.

# %%
import pandas as pd

rows = []
for arm in told.arms:
    step = arm.estimate("step_seconds")
    days = [seconds * TRAINING_STEPS / 86400 for seconds in (step.low, step.mean, step.high)]
    gpus = arm.plan.scenario.cluster.gpus
    usd = [part * 24 * gpus * USD_PER_GPU_HOUR for part in days]
    rows.append(
        {
            "in time": "yes" if days[2] <= DAYS else "perhaps" if days[0] <= DAYS else "no",
            "GPUs": gpus,
            "step (s)": f"{step.mean:.1f} ± {step.high - step.mean:.1f}",
            "days": f"{days[1]:.2f} ({days[0]:.2f} to {days[2]:.2f})",
            "USD": f"{usd[1]:,.0f} ({usd[0]:,.0f} to {usd[2]:,.0f})",
        }
    )
pd.DataFrame(rows, index=[arm.name for arm in told.arms])

# %% [markdown]
# ## Where the time goes as they grow
# The tail of the longest responses and the fixed overhead do not shrink: they are what stops the scaling.

# %%
figure = plots.utilisation_bars({arm.name: [run.metrics for run in arm.records] for arm in told.arms})
plots.save_figure(figure, FIGURES / "utilisation.png")
figure

# %% [markdown]
# ## What the answer rests on

# %%
for source in told.arms[0].plan.sources:
    print("ESTIMATE" if source.estimate else "measured or given", "|", source.what, "|", source.text)

# %% [markdown]
# ## A search instead of four sizes
# `rlsim plan` searches device, size, split, policy and bounds under a budget, with the flat region of the best point,
# what would change the choice and what one more GPU is worth (docs: size a cluster); `rlsim sweep` runs variants, and
# goes on where it was interrupted (docs: sweep).
