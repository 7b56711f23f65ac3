"""Thin commands; each runs as `python launch/NAME.py` or `python -m launch.NAME`."""
