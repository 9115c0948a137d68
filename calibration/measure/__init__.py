"""Measurements on this machine: the design of points, the campaign, its journal and the host."""
