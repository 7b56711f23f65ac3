"""The paper's numbers as data, and the comparison of our runs with them."""
