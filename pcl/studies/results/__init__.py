"""Which trial is best, and how surely: selection, Pareto front, replication, paired differences."""
