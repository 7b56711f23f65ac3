"""Text and HTML for people: numbers, durations, tables, and markup with automatic escaping."""
