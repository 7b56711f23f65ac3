"""The paper beside our runs: tables in five formats, figures, and the results kept with the code."""
