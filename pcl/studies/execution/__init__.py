"""Trials on Ray or in this process: runner, worker, Tune adapters, resources, early stopping and progress."""
