"""From a user's inputs to posteriors, angles and neighbours: what travels with a trained model. Needs no service."""
