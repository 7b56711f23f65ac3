"""What was done, on disk: the study spec, trial folders, reports, results and the lease on a study."""
