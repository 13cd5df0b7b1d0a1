"""How long a backward pass of DDP waits for its gradients once it has computed all of them."""

from contextlib import suppress

import torch

from dlcp_client.report.account import Account
from dlcp_client.torch.ranges import RANGES

_engine = torch.autograd.Variable._execution_engine  # noqa: SLF001  # no public name


def time_the_wait(account: Account) -> None:
    """Count what DDP waits at the end of this backward pass, where one is under way.

    Called in the hook of its first bucket. The engine calls back in the order in which it was
    asked: the first call below comes before DDP's own, which waits for all buckets and copies
    them, and the second one, which is asked for by then, after it. Under `model.join()` hooks run
    outside of a backward pass, where nothing can be asked for: those passes do not count.
    """

    def before() -> None:
        shown, began = RANGES.waiting(), account.now()
        shown.__enter__()

        def after() -> None:
            account.waited(account.now() - began)
            shown.__exit__(None, None, None)

        _engine.queue_callback(after)

    with suppress(RuntimeError):
        _engine.queue_callback(before)
