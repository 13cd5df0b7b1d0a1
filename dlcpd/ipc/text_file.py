"""Reads a text file that an operator wrote: in UTF-8, and no longer than such files are."""

from pathlib import Path

from dlcpd.contract.errors import BadConfig


def read(file: Path, where: str, what: str, most: int) -> str:
    """The text of a file, which errors name as `where`; `what`: the kind of file, for a file that
    cannot be one; `most`: bytes. Raises: BadConfig."""
    try:
        with file.open("rb") as opened:
            data = opened.read(most + 1)
    except OSError as exc:
        raise BadConfig(f"{where}: cannot be read: {exc.strerror}") from exc
    if len(data) > most:
        raise BadConfig(f"{where}: is longer than {most >> 20} MiB: is it a {what}?")
    try:
        return data.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as exc:
        raise BadConfig(f"{where}: is not UTF-8 text: is it a {what}?") from exc
