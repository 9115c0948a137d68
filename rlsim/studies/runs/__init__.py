"""Runs of a study: requested, executed in processes or on a cluster, stored and resumed."""
