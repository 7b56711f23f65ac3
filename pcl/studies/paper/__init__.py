"""What the paper prints, as data, and the comparison of our runs with it."""
