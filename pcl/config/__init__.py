"""A run as frozen data: its configuration, fidelity profiles and schedule."""
