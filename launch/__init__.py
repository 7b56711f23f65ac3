"""Thin commands. Each runs as `python launch/NAME.py` or `python -m launch.NAME`."""
