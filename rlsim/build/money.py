"""How many GPUs a plan uses, and what they cost."""

from __future__ import annotations

from rlsim.build.plan import Plan


def gpus_used(plan: Plan) -> int:
    """GPUs that the policy keeps busy or waiting; shared ones count once."""
    return plan.scenario.rollout.gpus - lent_gpus(plan) + (0 if plan.colocated else plan.scenario.trainer.gpus)


def price(plan: Plan) -> tuple[float, str]:
    """USD of a GPU-hour, and who says so."""
    rates = [(pool.own_gpus, pool.price_usd_per_gpu_hour, pool.price_source) for pool in plan.pools]
    if not plan.colocated:
        rates.append((plan.scenario.trainer.gpus, *_trainer_price(plan)))
    rates = [rate for rate in rates if rate[0]]
    if len({(usd, source) for _, usd, source in rates}) == 1:
        return rates[0][1:]
    usd = sum(gpus * each for gpus, each, _ in rates) / sum(gpus for gpus, _, _ in rates)
    return usd, f"mean over {' + '.join(f'{gpus} GPUs at {each:g}' for gpus, each, _ in rates)}"


def _trainer_price(plan: Plan) -> tuple[float, str]:
    given = plan.scenario.cluster.price_usd_per_gpu_hour
    if given is not None:
        return given, "given in the scenario"
    return plan.device.price_usd_per_gpu_hour, plan.device.price_source


def lent_gpus(plan: Plan) -> int:
    """GPUs that are rollout's and the trainer's in turn."""
    return len(plan.lent) * plan.pools[-1].rollout.gpus_per_replica
