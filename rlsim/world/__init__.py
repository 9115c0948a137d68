"""What a run is made of, simulated or live: machines, workload and costs as drawn, and nothing of the policy."""
