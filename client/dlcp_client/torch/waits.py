"""How long a backward pass of DDP waits for its gradients once it has computed all of them."""

import threading
from collections.abc import Callable
from contextlib import suppress

import torch

from dlcp_client.report.account import Account
from dlcp_client.torch.ranges import RANGES

_engine = torch.autograd.Variable._execution_engine  # noqa: SLF001  # no public name
_thread = threading.local()


def time_the_wait(account: Account) -> None:
    """Count what DDP waits at the end of this backward pass, where one is under way, and show it.

    Called in the hook of its first bucket.
    """

    def begin() -> Callable[[], None]:
        began = account.now()
        return lambda: account.waited(account.now() - began)

    _around_the_wait(begin)


def show_the_wait() -> None:
    """Show what DDP waits at the end of this backward pass, where one is under way.

    Called where it asks for a Future of the backend, which it waits for in C++. Once a pass.
    """
    task = torch._C._current_graph_task_id()  # noqa: SLF001  # no public name; -1: there is none
    if task not in (-1, getattr(_thread, "shown", -1)):
        _thread.shown = task
        _around_the_wait(lambda: lambda: None)


def _around_the_wait(begin: Callable[[], Callable[[], None]]) -> None:
    """Call `begin` before the wait, and what it returns after it.

    The engine calls back in the order in which it was asked: the first call below comes before
    DDP's own, which waits for all buckets and copies them, and the second one, which is asked for
    by then, after it. Under `model.join()` hooks run outside of a backward pass, where nothing can
    be asked for: those passes do not count.
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
