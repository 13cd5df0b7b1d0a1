"""Reads devices from a JSON file: a plain list, or an answer of NetBox's API. Pure.

A list has objects with the keys of [[device]]. NetBox's `/api/dcim/devices/` has `results`, of
which the name, the platform's slug and the primary address are read. The template is the custom
field `switchcfg_template`, else the role; the side is the custom field `switchcfg_side`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from switchcfg.errors import BadIntent
from switchcfg.intent.known import KNOWN
from switchcfg.intent.table import Source, Table
from switchcfg.intent.toml_lines import Path

MAX_TEXT: Final = 1 << 26  # characters; NetBox writes a few thousand per device
# Platform slugs in NetBox, with "-" for "_" -> the platform's name in an intent.
SLUGS: Final[Mapping[str, str]] = {
    slug: name for name, each in KNOWN.items() for slug in each.slugs
}


def rows(text: str, name: str) -> Iterator[Table]:
    """One table per device. Raises: BadIntent naming the file and the device."""
    source = Source(name, None)
    if len(text) > MAX_TEXT:
        raise BadIntent(f"{name}: {len(text)} characters, at most {MAX_TEXT}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BadIntent(f"{name}: is not JSON: {exc}") from exc
    if isinstance(found, list):
        for position, row in enumerate(found):
            yield Table(_object(row, (position,), source), (position,), source)
    elif isinstance(found, dict) and isinstance(found.get("results"), list):
        _refuse_pages(found, source)
        for position, row in enumerate(found["results"]):
            path: Path = ("results", position)
            yield _netbox(_object(row, path, source), path, source)
    else:
        raise BadIntent(f"{name}: must be a list of devices, or an answer of NetBox with `results`")


def _object(row: Any, path: Path, source: Source) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        raise source.error(path, "is not an object")
    return row


def _refuse_pages(answer: Mapping[str, Any], source: Source) -> None:
    """Raises: BadIntent for one page of several: its devices would be taken for all."""
    count = answer.get("count", len(answer["results"]))
    if answer.get("next") or count != len(answer["results"]):
        why = (
            f"{len(answer['results'])} of {count} devices: ask NetBox with ?limit=0 for all, or "
            "join the `results` of all pages"
        )
        raise source.error(("results",), why)


def _netbox(row: Mapping[str, Any], path: Path, source: Source) -> Table:
    """The keys of [[device]], each with its path in NetBox's answer."""
    found: dict[str, tuple[Any, Path]] = {}

    def take(key: str, *way: str) -> None:
        value: Any = row
        for part in way:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None and value != "" and key not in found:
            found[key] = value, (*path, *way)

    take("name", "name")
    take("platform", "platform", "slug")
    take("address", "primary_ip", "address")
    take("side", "custom_fields", "switchcfg_side")
    take("template", "custom_fields", "switchcfg_template")
    take("template", "role", "slug")
    take("template", "device_role", "slug")  # of NetBox before 3.6
    values = {key: value for key, (value, _) in found.items()}
    if isinstance(values.get("platform"), str):
        slug = values["platform"].lower().replace("_", "-")
        values["platform"] = SLUGS.get(slug, slug)
    if isinstance(values.get("address"), str):
        values["address"] = values["address"].partition("/")[0]  # without prefix length
    return Table(values, path, source, {key: (source, at) for key, (_, at) in found.items()})
