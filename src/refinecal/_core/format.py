"""Numbers and names as people read them: in tables, sentences and figures."""

import math
import re
from collections.abc import Sequence
from numbers import Integral
from typing import SupportsFloat

MISSING = "–"
MINUS = "\N{MINUS SIGN}"  # as wide as a digit, unlike the hyphen
SIGNIFICANT = 4
MOST_DECIMALS = 7  # numbers that need more are written with a power of ten
PERCENT = re.compile(r"(?<=\d) %(?=[\s.,;:)]|$)")  # not in a quoted name
ONE = re.compile(r"(?<![\d.,])1 (test )?rows\b")


def number(value: SupportsFloat, digits: int | None = None) -> str:
    """Return a number with this many decimals, or with 4 significant digits.

    >>> number(0.25), number(1e-9), number(12000), number(-3.14159, 2), number(float("inf"))
    ('0.2500', '1.000e−9', '12,000', '−3.14', '∞')
    """
    if isinstance(value, Integral):
        return f"{int(value):,}".replace("-", MINUS)
    plain = float(value)
    if math.isnan(plain):
        return MISSING
    if math.isinf(plain):
        return "∞" if plain > 0 else f"{MINUS}∞"
    if digits is None:
        digits = significant_decimals(plain)
        if digits > MOST_DECIMALS or abs(plain) >= 1e15:
            mantissa, power = f"{plain:.{SIGNIFICANT - 1}e}".split("e")
            return f"{mantissa}e{int(power)}".replace("-", MINUS)
    return f"{round(plain, digits) + 0.0:,.{digits}f}".replace("-", MINUS)  # never -0.0000


def significant_decimals(value: float) -> int:
    """Return how many decimals show 4 significant digits."""
    if value == 0:
        return 0
    return max(0, SIGNIFICANT - 1 - math.floor(math.log10(abs(value))))


def count(n: float, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> count(12000, "row"), count(1, "class", "classes")
    ('12,000 rows', '1 class')
    """
    return f"{n:,.0f} {noun if n == 1 else plural or f'{noun}s'}"


def percent(part: float, digits: int = 1, sign: str = "") -> str:
    """Return a fraction in percent, never minus 0; with ``sign`` "+", with a sign unless it is 0.

    >>> percent(-1e-6), percent(-0.0223, sign="+"), percent(0.02234, 2)
    ('0.0%', '−2.2%', '2.23%')
    """
    rounded = round(100 * part, digits) + 0.0
    return f"{rounded:{sign if rounded else ''},.{digits}f}%".replace("-", MINUS)


def format_signed(value: float, digits: int = 1) -> str:
    """Return a number with its sign, never minus 0.

    >>> format_signed(-0.04), format_signed(1.25), format_signed(-3)
    ('+0.0', '+1.2', '-3.0')
    """
    return f"{round(float(value), digits) + 0.0:+.{digits}f}"


def significant(value: float, digits: int) -> str:
    """Return a number with at most this many significant digits.

    >>> significant(0.0701234, 3), significant(10, 3)
    ('0.0701', '10')
    """
    return f"{value:.{digits}g}"


def error_decimals(error: float) -> int:
    """Return how many decimals show 2 significant digits of an error, 4 if there is none.

    >>> error_decimals(0.1278), error_decimals(0.0039), error_decimals(31.0), error_decimals(0.0)
    (2, 4, 0, 4)
    """
    if not 0 < error < math.inf:
        return 4
    return min(max(0, 1 - math.floor(math.log10(error))), MOST_DECIMALS)


def with_error(value: float, error: float, digits: int | None = None, sign: str = "") -> str:
    """Return a number with its standard error, by default with 2 significant digits of the error.

    >>> with_error(0.4982, 0.1278), with_error(-0.25, 0.01, sign="+"), with_error(0.25, math.nan)
    ('0.50 ± 0.13', '−0.250 ± 0.010', '0.2500')
    """
    digits = error_decimals(error) if digits is None else digits
    text = f"{value:{sign}.{digits}f}".replace("-", MINUS)
    return text if math.isnan(error) else f"{text} ± {error:.{digits}f}"


def interval(low: float, high: float, digits: int = 4) -> str:
    """Return the two ends of an interval.

    >>> interval(0.125, 0.25, 3), interval(-1, 1, 0)
    ('0.125 to 0.250', '−1 to 1')
    """
    return f"{number(float(low), digits)} to {number(float(high), digits)}"


def format_beta(beta: float | None, digits: int = 4) -> str:
    """Return an inverse temperature; for separable rows only the search limits it.

    >>> format_beta(0.51234, 3), format_beta(0.448), format_beta(8.9e6), format_beta(None)
    ('0.512', '0.4480', '> 1e6', '')
    """
    if not beta:
        return "" if beta is None else "0"
    return f"{beta:#.{digits}g}" if beta <= 1e6 else "> 1e6"


def format_fixed(value: float) -> str:
    """Return a number in 9 characters, with 5 decimals if it is not too large for that."""
    return f"{value:9.5f}" if not abs(value) >= 1000 else f"{value:9.3g}"


def list_names(names: Sequence[object], most: int = 12) -> str:
    """Return names in quotes, separated by commas, the first ones only if there are many.

    >>> list_names(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def shorten_name(name: str, width: int) -> str:
    """Return a name that fits into a table."""
    return name if len(name) <= width else name[: width - 3] + "..."


def name_class(label: object, width: int) -> str:
    """Return a class that fits into a figure: a name in quotes, as in sentences; a number as it is.

    >>> name_class("good", 9), name_class(1, 9)
    ("'good'", '1')
    """
    text = shorten_name(str(label), width)
    return f"'{text}'" if isinstance(label, str) else text


def tidy_sentence(text: str) -> str:
    """Return a sentence without spaces before percent signs, and with one row in the singular.

    >>> tidy_sentence("10.5% or 2 % of '5 %' (1 rows)")
    "10.5% or 2% of '5 %' (1 row)"
    """
    return ONE.sub(r"1 \1row", PERCENT.sub("%", text))
