"""A study's winner as a model in MLflow's registry: packed, exported, versioned, aliased."""
