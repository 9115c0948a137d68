"""What a run tells: tables, metrics, statistics, plots and traces."""
