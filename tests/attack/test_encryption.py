"""Data that are encrypted, seen and met by somebody on the path."""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import numpy as np
import pytest

from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.contract.messages import Completed, Join, PeerRow
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind
from dlcpd.daemon.clients.join_request import links_of
from dlcpd.daemon.peers.keys import KeyPair
from dlcpd.io.config import EngineConfig
from dlcpd.io.udp.encryption import AES_256_GCM
from tests.attack.tap import TappedJob, grown
from tests.checks import Measured
from tests.daemon.kit import joins
from tests.daemon.test_two_hosts import all_reduce, ranks_of, start
from tests.io.engines import PATIENCE, token

SECTION = "security defaults"
COUNT: Final = 100_000  # elements: 350 datagrams to each rank
ON: Final = (
    f'[network]\npaths = [{{ address = "127.0.0.%d" }}]\ndata_encryption = "{AES_256_GCM}"\n'
)
OFF: Final = '[network]\npaths = [{ address = "127.0.0.%d" }]\n'


class Listener(threading.Thread):
    """Forwards what ranks say to each other, keeps all of it, and says some again on demand."""

    def __init__(self, job: TappedJob) -> None:
        super().__init__(daemon=True)
        self.job = job
        self._stop_now = threading.Event()

    def run(self) -> None:
        while not self._stop_now.is_set():
            if not self.job.forward():
                time.sleep(0.0005)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_now.set()
        self.join(PATIENCE)


@pytest.fixture
def tapped() -> Iterator[TappedJob]:
    made = TappedJob(
        [
            EngineConfig(
                host=f"host{rank}",
                data_encryption=AES_256_GCM,
                digest_every=1,
                segment_size=1152,
                offload=bool(rank),
            )
            for rank in range(2)
        ],
        keyed=True,
    )
    yield made
    made.close()


def one_operation(job: TappedJob, number: int) -> None:
    """An exact all-reduce, whose result is checked."""
    parts = draw("float32", 2, COUNT, number)
    outcomes = job.all_reduce(number, parts)
    assert all(isinstance(outcome, Completed) for outcome in outcomes), outcomes
    for rank in job.ranks:
        assert rank.tensor(0, COUNT).tobytes() == rank_ordered(parts, "float32", "sum").tobytes()


def counted(job: TappedJob) -> list[Counter[str]]:
    return [Counter(engine.counters()) for engine in job.engines]


@pytest.mark.check(SECTION, "data encrypted: nothing of a tensor is in clear on the path")
def test_nothing_of_a_tensor_is_in_clear(tapped: TappedJob, measured: Measured) -> None:
    part = np.tile(np.frombuffer(b"WORDS!!!", np.float32), COUNT // 2)
    with Listener(tapped):
        for number in (1, 2):
            outcomes = tapped.all_reduce(number, [part, part])
            assert all(isinstance(outcome, Completed) for outcome in outcomes)
    heard = [d for kinds in tapped.heard.values() for some in kinds.values() for d in some]
    data = [each for each in heard if each[1] == Kind.DATA]
    assert len(data) >= 32, "or it listened in vain"
    both = b"".join(each[HEADER_SIZE:] for each in heard)
    for words in (part[:2], part[:2] + part[:2]):  # what ranks contribute, and their sum
        assert words.tobytes() not in both
    assert not {Header.unpack_untrusted(each).checksum for each in heard} & {0}
    assert {len(each) for each in data} >= {HEADER_SIZE + 1152 + 16}
    measured(f"{len(both):,} B of {len(heard)} datagrams heard")


@pytest.mark.check(SECTION, "data encrypted: what is sent again is refused before it does anything")
def test_what_is_sent_again_is_refused(tapped: TappedJob, measured: Measured) -> None:
    with Listener(tapped) as listener:
        one_operation(tapped, 1)
        seen = {
            way: [d for some in kinds.values() for d in some] for way, kinds in tapped.heard.items()
        }
        before = counted(tapped)
        sent = [0, 0]
        for (_, target), datagrams in seen.items():
            sock = tapped.taps[1 - target, target]
            for data in datagrams:
                sock.sendto(data, tuple(tapped.endpoints[target][0]))
                sent[target] += 1
        _until_refused(tapped, before, "replayed", sent)
        growth = [grown(*each) for each in zip(before, counted(tapped), strict=True)]
        assert [each["replayed"] for each in growth] == sent
        for each in growth:  # nothing else looked at them
            assert not {"duplicate", "stale", "early", "checksum", "repeated"} & set(+each)
        one_operation(tapped, 2)
        assert listener.is_alive()
    measured(f"{sum(sent)} of {sum(sent)} refused")


def _until_refused(
    job: TappedJob, before: list[Counter[str]], reason: str, wanted: list[int]
) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        growth = [grown(*each) for each in zip(before, counted(job), strict=True)]
        if all(g[reason] >= n for g, n in zip(growth, wanted, strict=True)):
            return
        assert time.monotonic() < deadline, (growth, wanted)
        time.sleep(0.01)


@pytest.mark.check(SECTION, "data encrypted: who holds the token and sends in clear is refused")
def test_what_is_in_clear_is_refused(tapped: TappedJob, measured: Measured) -> None:
    with Listener(tapped):
        one_operation(tapped, 1)
        before, target = counted(tapped), tuple(tapped.endpoints[0][0])
        sent = 0
        for kind in Kind:
            for body in (bytes(16), bytes(1152), bytes(1168)):
                head = Header(kind, token(0, 1), operation=2, checksum=1 << 10 | sent)
                tapped.taps[1, 0].sendto(head.pack() + body, target)
                sent += 1
        _until_refused(tapped, before, "checksum", [sent, 0])
        one_operation(tapped, 2)
    measured(f"{sent} of {sent} datagrams of all kinds refused")


@pytest.mark.check(SECTION, "data encrypted: a peer that does not is refused by name, at both ends")
def test_a_peer_that_does_not_encrypt_is_refused_at_both_ends(
    tmp_path: Path, measured: Measured
) -> None:
    with (
        start(tmp_path, 1, more=ON % 1) as one,
        start(tmp_path, 2, more=OFF % 2) as two,
        one.client() as first,
        two.client() as second,
    ):
        clients = [first, second]
        for client, request in zip(
            clients, joins("job", [c.greet() for c in clients]), strict=True
        ):
            client.send(request)
        texts = [client.refused("ranks_disagree") for client in clients]
    for text in texts:
        for value in ("has none", "has aes-256-gcm"):
            assert value in text
        assert re.search("data_encryption: rank [01] on host-[12] has .*, rank [01] on", text)
        assert "make [network] data_encryption equal on both hosts" in text
    measured(texts[1][:100] + "...")


@pytest.mark.check(SECTION, "data encrypted: a rank that joins again has other keys")
def test_a_rank_that_joins_again_begins_with_other_secrets() -> None:
    """Its counter begins at 1 again, so nothing that it sent may have been under the same key."""
    row = PeerRow(1, "host-2", "tcp://127.0.0.2:1", KeyPair.new().text)
    request = Join("job", 0, 2, 1 << 16, 1.0, [PeerRow(0, "host-1", "", ""), row])
    secrets = [links_of(request, 1)[1].secret_in for _ in range(3)]
    assert len(set(secrets)) == 3
    assert all(len(bytes.fromhex(secret)) == 32 for secret in secrets)


@pytest.mark.parametrize("checksum", ["on", "off"])
def test_daemons_encrypt_and_say_so(tmp_path: Path, checksum: str) -> None:
    lines = f'{ON}checksum = "{checksum}"\nengines = 2\n'
    with start(tmp_path, 1, more=lines % 1) as one, start(tmp_path, 2, more=lines % 2) as two:
        ranks = ranks_of([one, one, two], "encrypted")  # two meet in memory
        all_reduce(ranks)
        features = ranks[0].client.status()["features"]
        assert features["data_encryption"] == AES_256_GCM
        assert features["data_path"] == "numpy"
        for rank in ranks:
            rank.client.close()
