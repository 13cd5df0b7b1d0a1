"""Messages and records as msgspec Structs: bounds of their fields, safe texts, and clear errors.

msgspec checks the types and bounds of the annotations while it decodes. A `Form` adds what it
lacks: texts without control characters, and errors that name the field.
"""

import re
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, get_args, get_origin

from msgspec import Meta, Struct, ValidationError
from msgspec.structs import force_setattr

from dlcpd.contract.printable import harmless

MAX_TEXT: Final = 1024  # characters of a name, host or error text
MAX_SHOWN: Final = 256  # characters of an error that quotes a wrong value
# Of msgspec's errors: position or name of the field, and the place within a list.
_PLACE: Final = re.compile(r" - at `\$(?:\[(\d+)\]|\.(\w+))(.*)`$", re.DOTALL)
S = TypeVar("S", bound=Struct)


def between(low: float, high: float) -> Meta:
    """The bounds of a number. NaN has no place between them."""
    return Meta(ge=low, le=high)


def most(limit: int) -> Meta:
    """The largest length of a text (characters), of bytes, or of a list."""
    return Meta(max_length=limit)


def plain(value: Any) -> Any:
    """For encoders: a text or number of a derived class, as numpy has them, by itself."""
    for kind in (float, int, str):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{type(value).__name__} is neither a text nor a number")


def without(value: Struct, *hidden: str) -> str:
    """The repr of a Struct without the values of secret fields."""
    names = (name for name in value.__struct_fields__ if name not in hidden)
    return f"{type(value).__name__}({', '.join(f'{n}={getattr(value, n)!r}' for n in names)})"


class Form(Generic[S]):
    """The fields of a Struct class, read once."""

    def __init__(self, kind: type[S]) -> None:
        self.kind, self.names = kind, kind.__struct_fields__
        self._first = 0 if kind.__struct_config__.tag is None else 1  # position of the first field
        self._hints = _hints(kind)
        parts = {name: _parts(hint) for name, hint in self._hints.items()}
        self._texts = [(name, limit) for name, (base, limit) in parts.items() if base is str]
        self._rows = [
            (name, columns)
            for name, (base, _) in parts.items()
            if get_origin(base) is list and (columns := _text_columns(get_args(base)[0]))
        ]
        self.has_texts: Final = bool(self._texts or self._rows)  # whether `clean` has any effect

    def clean(self, value: S) -> None:
        """Escape control characters in the texts of `value`, within their limits."""
        for name, limit in self._texts:
            text = getattr(value, name)
            if not text.isprintable():
                force_setattr(value, name, harmless(text)[:limit])
        for name, columns in self._rows:
            force_setattr(value, name, [_clean(row, columns) for row in getattr(value, name)])

    def problem(self, error: ValidationError) -> str:
        """The wrong field and what is wrong, or the fields if their number is wrong."""
        kind, text = self.kind.__name__, str(error)
        place = _PLACE.search(text)
        if place is None:
            return f"{kind}: needs exactly {', '.join(self.names)}"
        position, name, within = place.groups()
        if name is None:
            name = self.names[int(position) - self._first]
        what = text[: place.start()].replace("`", "")[:MAX_SHOWN]
        if get_origin(self._hints[name]) is Literal:
            what += f", need one of {', '.join(get_args(self._hints[name]))}"
        return harmless(f"{kind}.{name}: {what}{f', at {within}' if within else ''}")


def _hints(kind: Any) -> dict[str, Any]:
    """Annotations of a class and its bases; `typing.get_type_hints` takes ten times as long."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        found |= vars(each).get("__annotations__", {})
    return found


def _parts(hint: Any) -> tuple[Any, int]:
    """Type and largest length of an annotation."""
    if get_origin(hint) is Annotated:
        base, meta = get_args(hint)
        return base, meta.max_length or MAX_TEXT
    return hint, MAX_TEXT


def _text_columns(row: Any) -> dict[str, int]:
    """The texts of a NamedTuple class, with their limits."""
    columns = {name: _parts(hint) for name, hint in _hints(row).items()}
    return {name: limit for name, (base, limit) in columns.items() if base is str}


def _clean(row: Any, columns: dict[str, int]) -> Any:
    return row._replace(**{c: harmless(getattr(row, c))[:limit] for c, limit in columns.items()})


class IpcMessage(Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """Base of the messages between processes of a host. Their fields hold no reference to a
    message, so the garbage collector has nothing to find."""
