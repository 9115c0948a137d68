"""Runs as tasks of an existing Ray cluster are the runs of processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_files import written

from rlsim.scenario.document import load
from rlsim.scenario.variation import choices, factor
from rlsim.studies.runs.executor import Processes, RayTasks
from rlsim.studies.sweep import variants


@pytest.mark.slow
def test_tasks_of_an_existing_cluster_of_two_nodes_make_the_same_runs(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    found = variants(load(written(tmp_path)), choices([factor("seed=1,2,3")]))
    requests = [request for one in found for request in one.requests(2)]
    with Processes(1) as backend:
        here = {record.key: record.metrics for _, record in backend.records(requests)}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        with RayTasks(cluster.address) as backend:
            there = {record.key: record.metrics for _, record in backend.records(requests)}
    finally:
        cluster.shutdown()
    assert there == here
