"""What launched this process, and whether this process ends with it.

The agent of torchrun ends its workers when it is told to end; killed, it cannot, and they go on.
A launcher that is gone says nothing about the job, so this is asked for by name.
"""

import os
import select
import signal
import threading

_lock = threading.Lock()
_watched = set[int]()  # launchers


def end_with_launcher() -> None:
    """From now on this process gets SIGTERM when its parent ends, and so its daemon, if it has a
    private one, ends too. Once for each parent."""
    parent = os.getppid()
    with _lock:
        if parent in _watched:
            return
        _watched.add(parent)
    # Not PR_SET_PDEATHSIG: it speaks of the thread that made this process, which may end earlier.
    watcher = threading.Thread(target=_watch, args=(parent,), name="dlcp-launcher", daemon=True)
    watcher.start()


def _watch(parent: int) -> None:
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        _end()
        return
    except OSError:  # a kernel or a container that lets nobody look: as if it was not asked for
        return
    try:
        if os.getppid() == parent:  # else it ended meanwhile, and the number is another's
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()
    finally:
        os.close(descriptor)
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
