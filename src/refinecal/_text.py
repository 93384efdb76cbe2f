"""Numbers and names as tables for people show them."""


def shortened(name: str, width: int) -> str:
    """Return a name that fits into a table."""
    return name if len(name) <= width else name[: width - 3] + "..."


def shown_beta(beta: float | None, digits: int = 4) -> str:
    """Return an inverse temperature; where no row is wrong, nothing but the search bounds it.

    >>> shown_beta(0.51234, 3), shown_beta(8.9e6), shown_beta(None)
    ('0.512', '> 1e6', '')
    """
    if beta is None:
        return ""
    return f"{beta:.{digits}g}" if beta <= 1e6 else "> 1e6"


def fixed(value: float) -> str:
    """Return a number in 9 characters, with 5 decimals if it is not too large for that."""
    return f"{value:9.5f}" if not abs(value) >= 1000 else f"{value:9.3g}"
