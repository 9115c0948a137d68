"""The search of `rlsim plan`: candidates, scores, the decision and its sensitivity."""
