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
# # 3. Calibrating on your GPU, or on your logs
# A prediction is as good as its costs. On a GPU they are measured:
#
#     rlsim calibrate vllm --model FOLDER --device auto --budget 10m --out profile.json
#     rlsim calibrate torch --model FOLDER --device auto --budget 5m --out trainer.json
#     rlsim calibrate transport --bytes 256M --budget 1m --out transport.json
#
# and named in the scenario (`rollout.step_time.profile`, `trainer.profile`). Without one, the log of a run will do.
# Set `LOG` to yours and `SETTINGS` to what you know of it; as it stands, the notebook makes a log from a simulated
# run with hidden costs, so that what comes out can be held against the truth.

# %%
from pathlib import Path

LOG = None  # Path("metrics.jsonl")
SCENARIO = "../scenarios/quickstart.yaml"
SETTINGS = {"workload.prompts_per_step": 16, "workload.group_size": 8, "trainer.updates_per_step": 2, "run.steps": 30}
TRUTH = {"rollout.step_time.scale": 1.3, "trainer.mfu": 0.33, "trainer.fixed_seconds_per_step": 2.0, "seed": 99}
FIGURES = Path("out/calibrating")

# %%
import json

import rlsim
from rlsim.results.plots import run as plots

FIGURES.mkdir(parents=True, exist_ok=True)
KNOWN = SETTINGS | {
    "policy.preset": "sync-disaggregated", "rollout.gpus": 8, "trainer.gpus": 8, "run.warmup_steps": 1,
    "run.replications": 2, "sensitivity": [],
}  # fmt: skip
plans = rlsim.variants(
    SCENARIO,
    {"what I know": {}, "the real run": TRUTH | {"rollout.step_time.noise_cv": 0.05}},
    KNOWN,
    arm="on-policy colocated",
)

# %% [markdown]
# ## A log, as verl writes one

# %%
VERL = {
    "generation": "timing_s/gen", "old_log_prob_seconds": "timing_s/old_log_prob", "reference_seconds": "timing_s/ref",
    "update_actor_seconds": "timing_s/update_actor", "sync_seconds": "timing_s/update_weights",
    "step_seconds": "timing_s/step", "tokens": "perf/total_num_tokens", "mean": "response_length/mean",
    "max": "response_length/max", "min": "response_length/min", "clipped": "response_length/clip_ratio",
    "prompt": "prompt_length/mean",
}  # fmt: skip


def logged(made):
    run = rlsim.tables(rlsim.simulate(made))
    for step, samples in run["samples"].query("trained_step >= 0").groupby("trained_step"):
        tokens, row = samples.response_tokens, run["updates"].set_index("step").loc[step].to_dict()
        row |= {"mean": tokens.mean(), "max": tokens.max(), "min": tokens.min(), "prompt": samples.prompt_tokens.mean()}
        row["clipped"] = (samples.finish_reason == "length").mean()
        row["generation"] = samples.finished_seconds.max() - samples.submitted_seconds.min()
        yield {"step": int(step) + 1, "data": {name: float(row[ours]) for ours, name in VERL.items()}}


if LOG is None:
    LOG = FIGURES / "metrics.jsonl"
    LOG.write_text("".join(json.dumps(row) + "\n" for row in logged(plans["the real run"])))

# %% [markdown]
# ## The fit
# Costs and lengths with 95 % intervals, what the log cannot tell, and the errors on the half that was not fitted to.

# %%
from calibration.logs.calibrate import calibrate
from rlsim.core.errors import ParameterError

try:
    fitted = calibrate(LOG, plans["what I know"].scenario, FIGURES / "fitted")
    print(fitted.text())
except ParameterError as refused:  # a log that cannot support a fit says why
    fitted = None
    print(refused)

# %% [markdown]
# ## Against the truth
# Only where the log came from here. Scale and offset of the engine's steps stand for each other where batches are
# alike, as they are here: their sum is told, not each. The step time that is predicted is that of the real run under
# other random draws.

# %%
if fitted is not None:
    for estimate in fitted.estimates:
        if estimate.key in TRUTH:
            inside = "inside" if estimate.contains(TRUTH[estimate.key]) else "OUTSIDE"
            interval = f"{estimate.value:.3g} ({estimate.low:.3g} to {estimate.high:.3g})"
            print(f"{estimate.key}: {interval}; the truth, {TRUTH[estimate.key]:g}, is {inside}")
    before = rlsim.compare({"guessed": plans["what I know"], "the real run": plans["the real run"]})
    after = rlsim.compare(rlsim.load(FIGURES / "fitted/scenario.yaml", {"seed": 123}))
    real = before.arms[1].mean("step_seconds")
    steps = {"guessed costs": before.arms[0], "costs from the log": after.arms[0]}
    compared = plots.step_time_bars(
        {name: arm.estimate("step_seconds") for name, arm in steps.items()},
        {name: [real] for name in steps},
        "Step time of the real run, predicted",
        measured="the real run",
    )
    plots.save_figure(compared, FIGURES / "step_time.png")
compared if fitted else "nothing fitted"

# %% [markdown]
# ## How good is a profile?
# Every profile carries the errors at points that it was not fitted to. This one is shipped.

# %%
from calibration.profiles.plot import fit_figure
from calibration.profiles.text import shown
from rlsim.costs.profile import load_profile

profile = load_profile("llama-3.1-8b_h100-sxm_tp1", "profile")
print(shown(profile))
figure = fit_figure(profile)
plots.save_figure(figure, FIGURES / "profile.png")
figure
