"""A trained encoder behind MLflow's model interface. Travels with every registered model, without the other studies."""
