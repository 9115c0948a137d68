"""The simulated world: replicas, trainer, links and environments on SimPy's clock."""
