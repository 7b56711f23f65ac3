"""First lines of errors, as records tell them."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error, or its name where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
