"""A study's plan, tables, files and figures."""
