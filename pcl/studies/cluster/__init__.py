"""The Ray cluster of a study: starting one, joining one, detecting its loss, and submitting jobs."""
