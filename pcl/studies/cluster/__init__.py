"""The Ray cluster under a study: its start, joining one, losing it, and jobs sent to it."""
