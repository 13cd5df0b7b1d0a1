"""Replaces the journal for a shard that ends with its job: nothing is stored."""

from collections.abc import Iterator

from dlcp_client.server.entry import Entry


class Unkept:
    """The interface of a Journal, without a folder."""

    def append(self, entry: Entry) -> None:
        """Drop a version."""

    def snapshot(self, entry: Entry) -> None:
        """Drop the whole state."""

    def recover(self) -> Iterator[Entry]:
        """Yields nothing."""
        return iter(())

    def close(self) -> None:
        """Nothing to close."""
