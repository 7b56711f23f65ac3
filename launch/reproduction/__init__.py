"""The parts of `launch/reproduce.py`: cells to train, grids to search, results to keep, sheets to write."""
