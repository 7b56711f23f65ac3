"""Commands that show what was found: the board, a page of images, the README's tables."""
