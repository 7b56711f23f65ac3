"""The service: search spaces, trials on Ray, records in MLflow, selection. The only package that imports those."""
