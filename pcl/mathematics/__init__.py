"""Special functions, tables of them, and random streams; imports nothing else of the package."""
