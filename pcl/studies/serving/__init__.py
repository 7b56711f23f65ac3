"""A trained encoder behind MLflow's model interface; in every registered model, without the rest of `pcl.studies`."""
