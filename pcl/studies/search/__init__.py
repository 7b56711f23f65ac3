"""How a study moves through its stages: grid, random and Optuna."""
