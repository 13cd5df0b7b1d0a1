"""Collects, shortens and prints the diffs that devices themselves make of a plan."""

from collections.abc import Iterator
from typing import Final

from switchcfg.cli.output import tell
from switchcfg.cli.workflow import TellDiff
from switchcfg.intent.intent import Device
from switchcfg.plan.masking import masked

LINES: Final = 5000  # of one device: EOS prints 6 per changed port, for 800 ports
WIDTH: Final = 1000  # characters of one line
NONE: Final = "the device computes no diff"
NOT_BEFORE: Final = f"{NONE} before a change"  # NX-OS has one after a change


def shortened(diff: str) -> str:
    """The diff without secrets, cut to LINES lines of WIDTH characters; a last line counts the
    others."""
    lines = masked(diff).splitlines()
    shown = [each if len(each) <= WIDTH else f"{each[:WIDTH]}..." for each in lines[:LINES]]
    left = len(lines) - len(shown)
    return "\n".join([*shown, *([f"... and {left} more lines"] if left else [])])


class Diffs:
    """Diffs of all devices, by name; None: the device has none."""

    def __init__(self, none: str = NONE) -> None:
        self.found: dict[str, str | None] = {}
        self._none = none

    def add(self, device: Device, diff: str | None) -> None:
        self.found[device.name] = shortened(diff) if diff is not None else None

    def status(self, name: str) -> str:
        """The status of one device."""
        if name not in self.found:
            return "nothing to do"
        if (diff := self.found[name]) is None:
            return self._none
        return "the device reports changes" if diff else "the device reports no change"

    def lines(self, device: Device) -> Iterator[str]:
        """Lines for output. The diff is indented, so that it cannot imitate lines of switchcfg."""
        diff = self.found.get(device.name) or ""
        yield f"{device.name} ({device.platform}): {self.status(device.name)}{':' if diff else ''}"
        for line in diff.splitlines():
            yield f"  {line.expandtabs()}".rstrip()

    def telling(self, device: Device) -> TellDiff:
        """A function that adds the diff of a device and prints it."""

        def told(diff: str | None) -> None:
            self.add(device, diff)
            for line in self.lines(device):
                tell(line)

        return told
