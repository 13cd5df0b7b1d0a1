"""Events of transfers reach the operation that they belong to, or none."""

import numpy as np

from dlcpd.contract.errors import OperationAborted
from dlcpd.core.paths.health import PathState
from dlcpd.core.session.events import PathNews
from dlcpd.core.timers import Timer
from dlcpd.core.wire.header import Key
from tests.core.operations import NOW, begun, sender, session

FIRST = Key(0, 1, 0)


def test_an_open_operation_gets_the_events_of_its_transfers() -> None:
    made = session()
    operation, callbacks = begun(made), made.callbacks
    callbacks.settle_implied(1, FIRST, NOW)
    assert callbacks.open_incoming(1, FIRST) == "duplicate"
    assert list(callbacks.on_waived(2, sender(1), np.arange(1), told=False)) == [0]
    assert operation.calls[1:] == [("implied", 1, FIRST), ("open", 1, FIRST), ("waived", 2)]


def test_an_acknowledged_transfer_shows_that_the_peer_has_ready() -> None:
    made = session()
    operation = begun(made)
    made.callbacks.on_acknowledged(1, sender(1), NOW)
    assert operation.calls[1:] == [("known", 1), ("acknowledged", 1)]
    assert not made.timers.pending((made, Timer.READY, 1))
    assert made.timers.pending((made, Timer.READY, 2))


def test_the_reason_to_discard_data_without_an_operation() -> None:
    made = session()
    assert made.callbacks.open_incoming(1, FIRST) == "early"
    operation = begun(made)
    made.finished(operation)
    made.fail(begun(made, 2), OperationAborted("no"))
    reasons = [made.callbacks.open_incoming(1, Key(0, number, 0)) for number in (1, 2, 3)]
    assert reasons == ["stale", "failed", "early"]


def test_an_operation_that_is_over_gets_nothing() -> None:
    made = session()
    operation = begun(made)
    made.finished(operation)
    calls = list(operation.calls)
    made.callbacks.settle_implied(1, FIRST, NOW)
    made.callbacks.on_acknowledged(1, sender(1), NOW)
    assert len(made.callbacks.on_waived(1, sender(1), np.arange(1), told=False)) == 0
    assert operation.calls == calls


def test_a_path_that_changed_is_counted_and_reported() -> None:
    made = session()
    made.callbacks.on_path(2, 0, PathState.DOWN)
    assert made.outcomes.take() == [PathNews(7, 2, 0, PathState.DOWN, 0.0)]
    assert made.counters[PathState.DOWN.value] == 1
