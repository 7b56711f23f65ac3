"""SVG drawings: learning curves, parallel coordinates, means with intervals, and their scales."""
