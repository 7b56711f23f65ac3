"""Studies from Python, as `pcl.search`, `pcl.ablate` and `pcl.open_study` offer them."""
