"""The paper and our runs: tables in five formats, figures, and the results kept with the code."""
