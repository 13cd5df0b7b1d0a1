"""Files of the product whose functions run from one function's first call to another's end.

As a program it is the engine: `--files PATH` names the file that it writes when it has handed the
first segments of an operation to the kernel.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from dlcpd.core.endpoint import Endpoint
from dlcpd.io import engine
from dlcpd.io.clients.lane import Lane
from dlcpd.io.network import Network
from dlcpd.io.udp.udp_path import UdpPath

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = tuple(str(ROOT / folder) + "/" for folder in ("dlcpd", "client/dlcp_client"))


class Passage:
    """Collects the files of this thread's calls from the first call of `first` to the first return
    of `last`; then calls `over` with their sorted paths. Calls of `others` and the calls below them
    do not count."""

    def __init__(
        self,
        first: Callable[..., Any],
        last: Callable[..., Any],
        over: Callable[[list[str]], object],
        others: Sequence[Callable[..., Any]] = (),
    ) -> None:
        self._first, self._last, self._over = first.__code__, last.__code__, over
        self._others = {other.__code__ for other in others}
        self._below: FrameType | None = None  # the call of one of them that runs
        self._files: set[str] | None = None  # None: `first` was not called yet

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """A profile function, for `sys.setprofile`."""
        code = frame.f_code
        if self._below is not None:
            if event == "return" and frame is self._below:
                self._below = None
            return
        if event == "call" and code in self._others:
            self._below = frame
            return
        if self._files is None:
            if event != "call" or code is not self._first:
                return
            self._files = set()
        if event == "call" and code.co_filename.startswith(PRODUCT):
            self._files.add(code.co_filename)
        elif event == "return" and code is self._last:
            sys.setprofile(None)
            self._over(sorted(str(Path(file).relative_to(ROOT)) for file in self._files))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=Path, required=True)
    options, rest = parser.parse_known_args()
    sys.argv[1:] = rest

    def over(files: list[str]) -> None:
        part = options.files.with_suffix(".part")
        part.write_text("\n".join(files))
        part.rename(options.files)

    others = Endpoint.handle_timeout, Network._receive  # noqa: SLF001  # of any operation
    sys.setprofile(Passage(Lane.receive, UdpPath.send, over, others))
    return engine.main()


if __name__ == "__main__":
    sys.exit(main())
