"""Text and HTML for people: numbers, durations, tables, markup that escapes by itself."""
