"""Trials on Ray: runner, worker, Tune adapters, resources, early stopping and progress."""
