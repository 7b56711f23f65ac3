"""Views of recorded results. Nothing here trains or writes: the package only reads the tracking store."""
