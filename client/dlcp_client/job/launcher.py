"""Ends this process when its launcher ends, if that is requested.

torchrun's agent ends its workers when it is told to end; if it is killed, they keep running. The
end of a launcher need not mean the end of the job, so this is off by default.
"""

import os
import select
import signal
import threading

_lock = threading.Lock()
_watched = set[int]()  # launchers


def end_with_launcher() -> None:
    """From now on this process gets SIGTERM when its parent ends; a private daemon then ends, too.
    Once per parent."""
    parent = os.getppid()
    with _lock:
        if parent in _watched:
            return
        _watched.add(parent)
    # Not PR_SET_PDEATHSIG: it watches the thread that started this process, which may end earlier.
    watcher = threading.Thread(target=_watch, args=(parent,), name="dlcp-launcher", daemon=True)
    watcher.start()


def _watch(parent: int) -> None:
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        _end()
        return
    except OSError:  # a kernel or container without permission: do nothing
        return
    try:
        if os.getppid() == parent:  # else it ended meanwhile, and its id was reused
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()
    finally:
        os.close(descriptor)
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
