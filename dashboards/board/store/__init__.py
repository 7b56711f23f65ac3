"""Records that the board reads: rows of MLflow, and the studies, trials and seeds in them."""
