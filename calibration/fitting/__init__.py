"""Estimators: robust regression, step-time models and their standard errors."""
