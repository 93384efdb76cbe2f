"""Oracles of many digits that check themselves."""

from functools import wraps

import mpmath

DIGITS = (30, 60, 120, 240, 480, 960)
AGREEMENT = mpmath.mpf(10) ** -20  # relative; doubles have 16 digits


def settled(oracle):
    """Double the digits of an mpmath oracle until two results in a row agree to 20 digits.

    A sum that cancels loses more digits than a fixed precision allows for; then the oracle is wrong, not the
    code that it judges. If it cancels to 0, the most digits have to say so too.
    """

    @wraps(oracle)
    def with_enough_digits(*args, **kwargs):
        previous = None
        for digits in DIGITS:
            with mpmath.workdps(digits):
                value = oracle(*args, **kwargs)
                if previous is not None and _agree(previous, value, is_last=digits == DIGITS[-1]):
                    return value
            previous = value
        raise AssertionError(f"{oracle.__name__} does not settle with {digits} digits: {value}")

    return with_enough_digits


def _agree(one, other, is_last):
    if isinstance(one, (list, tuple)):
        return all(_agree(a, b, is_last) for a, b in zip(one, other, strict=True))
    return abs(one - other) <= AGREEMENT * abs(other) and (other != 0 or is_last)
