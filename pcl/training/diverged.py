"""The error of a training that has nothing left to train."""


class Diverged(RuntimeError):
    """Every run of a training ended early; the message names the cause of each."""
