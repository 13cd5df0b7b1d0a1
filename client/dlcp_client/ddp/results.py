"""Arena tensors for the averages of DDP's buckets, reused between steps."""

import torch
from torch._C._distributed_c10d import GradBucket

from dlcp_client.operations.work import Work
from dlcp_client.session import Session


class ResultTensors:
    """The tensors of the last step, which the next one reuses.

    DDP keeps a hook's result for a bucket until the end of the next step, when it gets the next
    one: with a new tensor in each step the arena would hold two results of each bucket.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[torch.Tensor, Work]] = {}  # by number of the bucket

    def empty(self, session: Session, bucket: GradBucket, wait: float) -> torch.Tensor:
        """An arena tensor of the size of `bucket`. Waits up to `wait` seconds for the bucket's last
        result to be released (a peer that lacks it cannot begin the bucket either), and for space.

        Raises: ArenaFull, the error that ended the session.
        """
        buffer, held = bucket.buffer(), self._held.pop(bucket.index(), None)
        if held is not None:
            result, work = held
            free = session.released(work, wait)  # else a peer may still fetch parts of it
            if (result.shape, result.dtype) != (buffer.shape, buffer.dtype):
                self._held.clear()  # DDP has formed other buckets
            elif free:
                return result
            del held, result, work
        return session.empty(buffer.shape, buffer.dtype, wait=wait)

    def keep(self, bucket: GradBucket, result: torch.Tensor, work: Work) -> None:
        """`work` averages the bucket into `result`, which only DDP sees."""
        self._held[bucket.index()] = result, work

    def clear(self) -> None:
        """Release all tensors."""
        self._held.clear()
