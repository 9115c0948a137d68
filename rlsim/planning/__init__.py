"""Many runs: replications, arms, sensitivities and fits."""
