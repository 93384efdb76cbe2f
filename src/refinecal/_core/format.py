"""Numbers and names as people read them: in tables, sentences and figures."""

import math
import re
from collections.abc import Sequence
from numbers import Integral
from typing import SupportsFloat

MISSING = "–"
MINUS = "\N{MINUS SIGN}"  # as wide as a digit, unlike the hyphen
GAP = "\N{NARROW NO-BREAK SPACE}"  # between thousands, and before the percent sign
SIGNIFICANT = 4
MOST_DECIMALS = 7  # numbers that need more are written with a power of ten
PERCENT = re.compile(r"(?<=\d) ?%(?=[\s.,;:)]|$)")  # not in a quoted name
ONE = re.compile(r"(?<![\d.\u202f])1 (test )?rows\b")


def number(value: SupportsFloat, digits: int | None = None) -> str:
    """Return a number with so many decimals, or with 4 significant digits.

    >>> number(0.25), number(1e-9), number(3), number(float("inf"))
    ('0.2500', '1.000e−9', '3', '∞')
    """
    if isinstance(value, Integral):
        return f"{int(value):,}".replace(",", GAP).replace("-", MINUS)
    plain = float(value)
    if math.isinf(plain):
        return "∞" if plain > 0 else f"{MINUS}∞"
    if digits is None:
        digits = significant_decimals(plain)
        if digits > MOST_DECIMALS or abs(plain) >= 1e15:
            return _power_of_ten(plain)
    plain = round(plain, digits) + 0.0  # never -0.0000
    return f"{plain:,.{digits}f}".replace(",", GAP).replace("-", MINUS)


def significant_decimals(value: float) -> int:
    """Return how many decimals show 4 significant digits."""
    if value == 0:
        return 0
    return max(0, SIGNIFICANT - 1 - math.floor(math.log10(abs(value))))


def _power_of_ten(value: float) -> str:
    digits, power = f"{value:.{SIGNIFICANT - 1}e}".split("e")
    return f"{digits}e{int(power)}".replace("-", MINUS)


def tile(value: float) -> str:
    """Return a big number with four decimals, for those who want to know whether it is 0 too.

    >>> tile(0.25), tile(0.00001), tile(0.0), tile(float("inf"))
    ('0.2500', '< 0.0001', '0.0000', '∞')
    """
    if math.isnan(value):
        return MISSING
    return "< 0.0001" if 0 < value < 0.00005 else number(float(value), 4)


def percent(part: float, digits: int = 1, sign: str = "") -> str:
    """Return a part in percent, never minus 0; with ``sign`` "+", with a sign unless it is 0.

    >>> percent(-1e-6), percent(-0.0223, sign="+"), percent(0.02234, 2)
    ('0.0 %', '-2.2 %', '2.23 %')
    """
    rounded = round(100 * part, digits) + 0.0
    return f"{rounded:{sign if rounded else ''}.{digits}f} %"


def format_signed(value: float, digits: int = 1) -> str:
    """Return a number with its sign, never minus 0.

    >>> format_signed(-0.04), format_signed(1.25), format_signed(-3)
    ('+0.0', '+1.2', '-3.0')
    """
    return f"{round(float(value), digits) + 0.0:+.{digits}f}"


def four_digits(value: float) -> str:
    """Return four significant digits.

    >>> four_digits(0.66666), four_digits(0.05)
    ('0.6667', '0.05000')
    """
    return f"{value:#.4g}"


def list_names(names: Sequence[str], most: int = 12) -> str:
    """Return names as a list for people, cut off if there are many.

    >>> list_names(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def list_some(names: Sequence[object], most: int = 5) -> str:
    """Return the first of some names, quoted.

    >>> list_some(["a", "b", "c"], most=2)
    "'a', 'b', …"
    """
    return ", ".join(map(repr, names[:most])) + ", …" * (len(names) > most)


def tidy_sentence(text: str) -> str:
    """Return a sentence with a narrow space before each percent sign, and one row in the singular.

    >>> tidy_sentence("10.5% or 2 % of '5%' (1 rows)").replace(GAP, "_")
    "10.5_% or 2_% of '5%' (1 row)"
    """
    return ONE.sub(r"1 \1row", PERCENT.sub(f"{GAP}%", text))


def shorten_name(name: str, width: int) -> str:
    """Return a name that fits into a table."""
    return name if len(name) <= width else name[: width - 3] + "..."


def format_beta(beta: float | None, digits: int = 4) -> str:
    """Return an inverse temperature; where no row is wrong, nothing but the search bounds it.

    >>> format_beta(0.51234, 3), format_beta(8.9e6), format_beta(None)
    ('0.512', '> 1e6', '')
    """
    if beta is None:
        return ""
    return f"{beta:.{digits}g}" if beta <= 1e6 else "> 1e6"


def format_fixed(value: float) -> str:
    """Return a number in 9 characters, with 5 decimals if it is not too large for that."""
    return f"{value:9.5f}" if not abs(value) >= 1000 else f"{value:9.3g}"
