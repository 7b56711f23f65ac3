"""Results: selection, Pareto front, replication, paired differences."""
