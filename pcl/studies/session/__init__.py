"""One lifecycle for every study: plan, open, run, select, report, close. See `study_session.StudySession`."""
