"""A configuration becomes a trained encoder."""
