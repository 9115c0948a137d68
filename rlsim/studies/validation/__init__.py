"""Published measurements against predictions: entries, runs, scores and the report."""
