"""HTML that escapes by itself: markup, page frame, tables, and names for people."""
