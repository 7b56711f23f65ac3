"""Settings of a network that trains in milliseconds, with a truth that is drawn at once."""

SMALL = {
    "task.largest_cosine": 0.9, "task.dim": 4, "task.dim_x": 3, "task.smoothing": "none", "encoder.dim": 4,
    "encoder.hidden": "shallow",
}  # fmt: skip
