"""Checks that a study's folder, its result files, its checkpoints and its MLflow runs agree."""
