"""Finds a codec by its name."""

from functools import lru_cache
from importlib import import_module

from dlcpd.contract.codec import KINDS, parsed
from dlcpd.numerics.codecs.codec import Codec


@lru_cache(maxsize=64)
def codec_of(name: str) -> Codec:
    """The codec of a name. Raises: BadPolicy."""
    wanted = parsed(name)
    found: Codec = import_module(KINDS[wanted.kind].module).codec(wanted)
    return found
