"""First lines of errors, as records tell them."""

from pcl.storage.files import first_line

__all__ = ["first_line"]
