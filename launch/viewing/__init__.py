"""Commands that show what was found: the board, a page of images, verification."""
