"""Special functions, tables of them, and streams of random numbers; knows nothing of the rest of the package."""
