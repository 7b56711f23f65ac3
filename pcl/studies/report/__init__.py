"""What a study shows and leaves: plan, tables, files and figures."""
