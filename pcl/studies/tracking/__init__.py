"""MLflow: the tracker that writes a study, its store and database, and what is read back from them."""
