"""The messages of a group's operations, prepared at the first call: a training repeats them.

A message depends on the values of a call that `request` takes: of an array, on dtype and size. A
call with equal values takes a copy of the message; any other is checked and prepared by `request`.
"""

from collections.abc import Hashable
from typing import Any, Final, Unpack

from dlcp_client.arena.blocks import Block, Library
from dlcp_client.operations.requests import RequestOptions, request
from dlcpd.contract.errors import BadPolicy
from dlcpd.contract.messages import Submit
from dlcpd.contract.policy import EXACT, LossPolicy

# Of one group, in rows (sizes, exempt ranges, layers): a message takes 1 to 2 kB, a row some 100 B,
# so 2 MB at most. A model has a message per bucket, and a row or two per parameter.
MAX_ROWS: Final = 16_384
MESSAGE_ROWS: Final = 16  # size of a message without rows, in rows


class PreparedRequests:
    """The messages of one group. Once they have MAX_ROWS, all are dropped, and prepared again.

    Thread-safe: two threads may prepare the same message.
    """

    def __init__(self, library: Library[Any]) -> None:
        self._library = library
        self._messages: dict[Hashable, Submit] = {}
        self._rows = 0

    def __len__(self) -> int:
        """Number of prepared messages."""
        return len(self._messages)

    def request(
        self,
        collective: str,
        block: Block[Any],
        op: Any = "sum",
        *,
        policy: LossPolicy = EXACT,
        **options: Unpack[RequestOptions],
    ) -> Submit:
        """A new message, as `requests.request` makes it. `op` may be the library's own object.

        Raises: as `requests.request`.
        """
        if op.__class__ is not str:
            op = self._library.operation(op)
        try:
            if "sizes" in options:
                options["sizes"] = tuple(options["sizes"])
            if "exempt" in options:
                options["exempt"] = tuple(options["exempt"])
            if "layers" in options:
                options["layers"] = tuple(options["layers"])
        except TypeError as exc:
            raise BadPolicy(f"{collective}: exempt and layers are lists: {exc}") from exc
        key: Hashable = None
        message = None
        if policy.__class__ is LossPolicy:  # the values of a policy have been checked
            bound = policy.mode, policy.max_loss, tuple(policy.per_class.items())
            terms = policy.codec, policy.gather, policy.fill, policy.traffic_class, policy.deadline
            # With types: checks may refuse a value and take an equal one of another type, such as
            # `scale` of numpy, and a `peer` True.
            values = tuple(options.values())
            given = tuple(options), values, tuple(map(type, values))
            key = (collective, block.dtype, block.count, op, bound, terms, given)
            try:
                message = self._messages.get(key)
            except TypeError:  # a value that cannot be a key, such as a row that is a list
                key = None
        if message is None:
            message = request(collective, block, op, policy, **options)
            if key is not None:
                self._keep(key, message)
        copied: Submit = message.__copy__()  # type: ignore[attr-defined]  # msgspec's stubs lack it
        return copied

    def _keep(self, key: Hashable, message: Submit) -> None:
        rows = MESSAGE_ROWS + len(message.sizes) + len(message.exempt) + len(message.layers)
        if self._rows + rows > MAX_ROWS:
            self._messages, self._rows = {}, 0
        if rows <= MAX_ROWS:
            self._messages[key] = message
            self._rows += rows
