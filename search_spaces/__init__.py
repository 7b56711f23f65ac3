"""Search spaces: one file per space; the file's name is the space's name."""
