"""HTML of the board: page frame, tables, and names for people."""
