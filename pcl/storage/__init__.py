"""Files that are there whole or not at all, in folders and in object stores."""
