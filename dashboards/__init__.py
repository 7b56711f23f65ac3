"""Views of recorded results. Nothing here trains or writes; the package reads the tracking store alone."""
