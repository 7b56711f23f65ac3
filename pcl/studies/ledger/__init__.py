"""Records of studies on disk: study spec, trial folders, reports, results, and the lease on a study."""
