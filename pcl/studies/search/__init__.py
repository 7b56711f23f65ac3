"""Search through the stages of a study: grid, random and Optuna."""
