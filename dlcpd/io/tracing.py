"""Carries out control's requests to the recording of events (docs/trace.md)."""

import time
from typing import Final

from dlcpd.core.trace import Trace
from dlcpd.io.control_events import TraceReport

# Events of one answer. In JSON, a name has at most 64 characters of 4 bytes, twelve other values at
# most 21 bytes each: 350 x (258 + 12 x 21) = 179 KB, below the 192 KiB of a frame.
MAX_ROWS: Final = 350


def obey(trace: Trace, what: str) -> TraceReport:
    """Carry out one of contract.inquiries.TRACE, and return the state of the recording."""
    if what == "start":
        trace.start()
    elif what == "stop":
        trace.stop()
    elif what == "forget":
        trace.forget()
    rows = trace.take(MAX_ROWS) if what == "take" else []
    return TraceReport(
        {
            "on": trace.on,
            "full": trace.full,
            "steps": trace.steps,
            "left": len(trace),
            # microseconds to add to the events' clock to get those of the epoch
            "epoch": (time.time_ns() - time.monotonic_ns()) // 1000,
            "events": rows,
        }
    )
