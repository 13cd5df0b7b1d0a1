"""Replaces the journal for a shard that ends with its job: nothing is stored."""

from collections.abc import Iterator

from dlcp_client.server.journal_entry import JournalEntry


class NullJournal:
    """The interface of a Journal, without a folder."""

    def append(self, entry: JournalEntry) -> None:
        """Drop a version."""

    def snapshot(self, entry: JournalEntry) -> None:
        """Drop the whole state."""

    def recover(self) -> Iterator[JournalEntry]:
        """Yields nothing."""
        return iter(())

    def close(self) -> None:
        """Nothing to close."""
