"""Measures how long a backward pass of DDP waits for gradients after computing all of them."""

import threading
from collections.abc import Callable
from contextlib import suppress

import torch

from dlcp_client.ranges import RANGES
from dlcp_client.report.account import Account

_engine = torch.autograd.Variable._execution_engine  # noqa: SLF001  # no public name
_thread = threading.local()


def time_the_wait(account: Account) -> None:
    """Count and show DDP's wait at the end of the current backward pass, if there is one.

    Called in the hook of its first bucket.
    """

    def begin() -> Callable[[], None]:
        began = account.now()
        return lambda: account.waited(account.now() - began)

    _around_the_wait(begin)


def show_the_wait() -> None:
    """Show DDP's wait at the end of the current backward pass, if there is one.

    Called when DDP requests a Future of the backend, for which it waits in C++. Once per pass.
    """
    task = torch._C._current_graph_task_id()  # noqa: SLF001  # no public name; -1: no pass
    if task not in (-1, getattr(_thread, "shown", -1)):
        _thread.shown = task
        _around_the_wait(lambda: lambda: None)


def _around_the_wait(begin: Callable[[], Callable[[], None]]) -> None:
    """Call `begin` before the wait, and its result after it.

    The engine runs callbacks in the order of registration. `before` is registered before DDP's own
    callback, which waits for all buckets and copies them; `before` registers `after`, which then
    runs after DDP's. Under `model.join()` hooks run outside a backward pass, where no callback can
    be registered: those passes do not count.
    """

    def before() -> None:
        shown, end = RANGES.waiting(), begin()
        shown.__enter__()

        def after() -> None:
            end()
            shown.__exit__(None, None, None)

        _engine.queue_callback(after)

    with suppress(RuntimeError):
        _engine.queue_callback(before)
