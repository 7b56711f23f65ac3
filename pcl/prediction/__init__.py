"""Prediction with a packed model: posteriors, angles and neighbours of a user's inputs. Needs no service."""
