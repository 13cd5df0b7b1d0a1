"""Reads rates such as "100gbit", in the notation of tc."""

import re
from typing import Final

from dlcpd.contract.toml_text import shown

MOST: Final = 10**15  # bit/s of one link: a thousand times the fastest port there is
_RATE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s?(k|m|g|t|)bit")
_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_FORM: Final = 'write it like "500mbit" or "100gbit"'


def bits_per_second(text: object) -> int:
    """The rate in bit/s. Raises: ValueError that says what is wrong and how to write it."""
    found = _RATE.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if found is None:
        if isinstance(text, str) and text.strip().startswith("-"):
            raise ValueError(f"rate {shown(text)} is negative; {_FORM}")
        raise ValueError(f"{shown(text)} is not a rate; {_FORM}")
    rate = round(float(found[1]) * _UNITS[found[2]])
    if not rate:
        raise ValueError(f"rate {text!r} is zero; give a rate above 0, or remove the entry")
    if rate > MOST:
        raise ValueError(f"rate {text!r} is above {MOST // 10**12} tbit")
    return rate


def in_words(rate: float) -> str:
    """A rate in bit/s as `bits_per_second` reads it, with at most four significant digits."""
    for unit in ("t", "g", "m", "k"):
        if rate >= _UNITS[unit]:
            return f"{rate / _UNITS[unit]:.4g}{unit}bit"
    return f"{rate:.4g}bit"
