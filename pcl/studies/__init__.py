"""The service: search spaces, trials on Ray or in this process, records in MLflow, selection, reports."""
