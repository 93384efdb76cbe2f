"""Numbers and names as tables for people show them."""


def shortened(name: str, width: int) -> str:
    """Return a name that fits into a table."""
    return name if len(name) <= width else name[: width - 3] + "..."


def fixed(value: float) -> str:
    """Return a number in 9 characters, with 5 decimals if it is not too large for that."""
    return f"{value:9.5f}" if not abs(value) >= 1000 else f"{value:9.3g}"
