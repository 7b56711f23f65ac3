"""MLflow: the tracker that writes a study, its store and database, and what is found there again."""
