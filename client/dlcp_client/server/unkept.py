"""In the place of a journal, for a shard that ends with its job: nothing is kept."""

from collections.abc import Iterator

from dlcp_client.server.entry import Entry


class Unkept:
    """What a Journal has, without a folder."""

    def append(self, entry: Entry) -> None:
        """A version."""

    def snapshot(self, entry: Entry) -> None:
        """The whole state."""

    def recover(self) -> Iterator[Entry]:
        """Nothing."""
        return iter(())

    def close(self) -> None:
        """There is nothing to close."""
