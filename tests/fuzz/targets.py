"""Everything that reads bytes of others: one row each."""

import struct
import time
from functools import partial
from typing import Any, Final
from zlib import crc32

import numpy as np
from torch.distributed import HashStore  # type: ignore[attr-defined]

from dlcp_client.job import transport_vote
from dlcp_client.job.host_peers import HostPeers
from dlcp_client.job.rendezvous import Meeting, Member, roster
from dlcpd.contract.errors import (
    BadConfig,
    BadLedger,
    BadMessage,
    DlcpError,
    MalformedDatagram,
    NotAuthorised,
)
from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.messages import Join
from dlcpd.contract.traffic import parse_traffic_classes
from dlcpd.core.paths.pieces import Reassembly, cut
from dlcpd.core.wire import bundle, control, probes
from dlcpd.core.wire.control import DigestRow
from dlcpd.core.wire.header import Header
from dlcpd.daemon.config.file import parse as parse_config
from dlcpd.daemon.peers.frames import BrokenStream
from dlcpd.daemon.peers.key_files import parse_identity_untrusted, parse_public_untrusted
from dlcpd.daemon.peers.peer_messages import (
    MalformedPeerMessage,
    pack,
    unpack_peer_untrusted,
)
from dlcpd.daemon.peers.peers import PeerAddress
from dlcpd.doctor.datagrams import answer_untrusted, probe_untrusted
from dlcpd.doctor.greeting import Greeting
from dlcpd.ledger.frames import records_untrusted
from dlcpd.ledger.masks import count_untrusted as count_mask
from dlcpd.ledger.masks import unpack_paths_untrusted
from dlcpd.ledger.masks import unpack_untrusted as unpack_mask
from dlcpd.ledger.records import encode as encode_record
from switchcfg.errors import BadIntent
from switchcfg.intent.intent import parse as parse_intent
from tests.fuzz import handshake, machines, seeds
from tests.fuzz.target import Target, apart, joined
from tests.ledger.examples import ENDED, RECORDS
from tests.ledger.examples import FILE as LEDGER
from tests.switchcfg.intents import EXAMPLES, WHOLE

_SOON: Final = 60.0  # seconds; nothing waits: what is asked for is there


def _text(data: bytes) -> str:
    """As a file that is read: what is no UTF-8 is refused before the parser sees it."""
    return data.decode("utf-8", "replace")


def _body(data: bytes) -> object:
    return control.body_untrusted(data)


def _bits(data: bytes) -> object:
    return control.unpack_bits_untrusted(data[2:], int.from_bytes(data[:2], "little"))


def _permit(data: bytes) -> object:
    return control.unpack_permit_untrusted(data[2:], int.from_bytes(data[:2], "little"))


def _pieces(data: bytes) -> object:
    book = Reassembly()
    return [book.add(each) for each in apart(data)]


def _ledger_record(data: bytes) -> object:
    """The body of a record behind a head that proves it."""
    counts = struct.pack("<II", len(data), crc32(data))
    framed = counts + struct.pack("<I", crc32(counts)) + data
    return list(records_untrusted(framed, may_be_torn=False))


def _mask(data: bytes) -> object:
    """Behind the number of its segments, unpacked and counted: both refuse it, or they agree."""
    mask, count = data[2:], int.from_bytes(data[:2], "little")
    try:
        counted = count_mask(mask, count)
    except BadLedger:
        unpack_mask(mask, count)  # says so, too
        raise AssertionError("unpacked, and not counted") from None
    found = unpack_mask(mask, count)
    assert counted == len(found)
    return found


def _peer_address(data: bytes) -> object:
    endpoint, _, key = data.decode("utf-8", "surrogateescape").partition("\n")
    return PeerAddress.parse_untrusted(endpoint, key)


def _store(data: bytes) -> object:
    """What another rank wrote into the job's store, read in each of the ways in which it is."""
    store: Any = HashStore()
    store.set("dlcp/fuzz/1/0", data)
    try:
        said = Meeting(Member(store, 0, 1), "fuzz").gather(time.monotonic() + _SOON)
        transport_vote.verdict(said)
        transport_vote.difference(said)
        HostPeers.among(0, said)
        name, peers = roster(said)
    except DlcpError as exc:  # of whatever class the other rank said that its own error was
        raise BadMessage(str(exc)) from exc
    return encode(Join(name, 0, 1, 1 << 16, 1.0, peers))


def _signed(data: bytes) -> object:
    """The same, of a job with a secret; what is signed wrongly is refused before it is read."""
    store: Any = HashStore()
    store.set("dlcp/fuzz/1/0", data)
    try:
        return Meeting(seeds.member(store), "fuzz").gather(time.monotonic() + _SOON)
    except NotAuthorised as exc:
        raise BadMessage(str(exc)) from exc


TARGETS: Final = {
    target.name: target
    for target in (
        Target(
            "header",
            Header.unpack_untrusted,
            MalformedDatagram,
            seeds.HEADERS,
            ("dlcpd.core.wire.header:Header.unpack_untrusted",),
        ),
        Target(
            "ready",
            control.unpack_ready_untrusted,
            MalformedDatagram,
            (seeds.READY,),
            ("dlcpd.core.wire.control:unpack_ready_untrusted",),
        ),
        Target(
            "ready_carries",
            partial(control.unpack_ready_untrusted, carries=True),
            MalformedDatagram,
            (seeds.READY_CARRIES,),
            (),  # as above
        ),
        Target(
            "credit",
            control.unpack_credit_untrusted,
            MalformedDatagram,
            (control.pack_credit(1 << 20, seeds.CREDIT_ROWS), control.pack_credit(0, [])),
            ("dlcpd.core.wire.control:unpack_credit_untrusted",),
        ),
        Target(
            "digests",
            control.unpack_digests_untrusted,
            MalformedDatagram,
            (control.pack_digests([DigestRow(1, True, 2), DigestRow(3, False, 0)]),),
            ("dlcpd.core.wire.control:unpack_digests_untrusted",),
        ),
        Target(
            "complete",
            control.unpack_transfers_untrusted,
            MalformedDatagram,
            (control.pack_transfers([0, 1, 65535]),),
            ("dlcpd.core.wire.control:unpack_transfers_untrusted",),
        ),
        Target(
            "bitmap",
            _bits,
            MalformedDatagram,
            (b"\x0c\x00\xff\x0f", b"\x00\x10" + bytes(512)),
            ("dlcpd.core.wire.control:unpack_bits_untrusted",),
        ),
        Target(
            "end",
            control.unpack_ends_untrusted,
            MalformedDatagram,
            (control.pack_ends([control.EndRow(1, 4, 1000), control.EndRow(0, 0, 1)]),),
            ("dlcpd.core.wire.control:unpack_ends_untrusted",),
        ),
        Target(
            "permit",
            _permit,
            MalformedDatagram,
            (b"\x04\x00" + control.pack_permit(119, np.array([0, 16, 17, 255], np.uint8)),),
            ("dlcpd.core.wire.control:unpack_permit_untrusted",),
        ),
        Target(
            "bundle",
            bundle.unpack_untrusted,
            MalformedDatagram,
            (bundle.pack(seeds.TOKEN, 1, 18, [seeds.HEADERS[0] + b"xyz", seeds.HEADERS[1]]),),
            ("dlcpd.core.wire.bundle:unpack_untrusted",),
        ),
        Target("body", _body, (), seeds.HEADERS[:1], ("dlcpd.core.wire.control:body_untrusted",)),
        Target(
            "probe",
            probes.unpack_probe_untrusted,
            MalformedDatagram,
            (seeds.PROBE,),
            ("dlcpd.core.wire.probes:unpack_probe_untrusted",),
        ),
        Target(
            "probe_answer",
            probes.unpack_answer_untrusted,
            MalformedDatagram,
            (seeds.ANSWER,),
            ("dlcpd.core.wire.probes:unpack_answer_untrusted",),
        ),
        Target("pieces", _pieces, MalformedDatagram, (joined(seeds.pieces(cut)),)),
        Target(
            "datapath",
            machines.datapath,
            (),
            (
                joined(header + bytes([n]) * 64 for n, header in enumerate(seeds.HEADERS)),
                joined(
                    seeds.HEADERS[0][:20] + bytes([s, 0]) + seeds.HEADERS[0][22:] + bytes(64)
                    for s in range(6)
                ),
            ),
        ),
        Target(
            "endpoint",
            machines.endpoint,
            (),
            tuple(joined([each]) for each in seeds.first_of_each_kind(seeds.datagrams())),
        ),
        Target(
            "discovery",
            machines.discovery,
            (),
            (joined([seeds.PROBE, seeds.ANSWER]), joined(seeds.pieces(cut)), joined(seeds.HEADERS)),
        ),
        Target(
            "ipc_frame",
            decode_untrusted,
            BadMessage,
            seeds.ipc_frames(),
            ("dlcpd.contract.frames:decode_untrusted",),
        ),
        Target(
            "lane",
            machines.lane,
            (),
            (joined(map(encode, seeds.LANE)), *(joined([each]) for each in seeds.ipc_frames())),
        ),
        Target(
            "peer_message",
            unpack_peer_untrusted,
            MalformedPeerMessage,
            tuple(map(pack, seeds.PEER_MESSAGES)),
            ("dlcpd.daemon.peers.peer_messages:unpack_peer_untrusted",),
        ),
        Target(
            "peer_address",
            _peer_address,
            BadMessage,
            (seeds.PEER_ADDRESS.encode(),),
            ("dlcpd.daemon.peers.peers:PeerAddress.parse_untrusted",),
        ),
        Target(
            "called",
            handshake.called,
            BrokenStream,
            handshake.conversation()[:1],
            ("dlcpd.daemon.peers.frames:check_greeting_untrusted",),
        ),
        Target("calling", handshake.calling, BrokenStream, handshake.conversation()[1:]),
        Target(
            "cipher",
            lambda data: handshake.cipher().open_untrusted(data),
            BrokenStream,
            (handshake.SEALED,),
            ("dlcpd.daemon.peers.curve:Cipher.open_untrusted",),
        ),
        Target(
            "doctor_probe",
            probe_untrusted,
            (),
            (seeds.DOCTOR_PROBE,),
            ("dlcpd.doctor.datagrams:probe_untrusted",),
        ),
        Target(
            "doctor_answer",
            answer_untrusted,
            (),
            (seeds.DOCTOR_ANSWER,),
            ("dlcpd.doctor.datagrams:answer_untrusted",),
        ),
        Target(
            "doctor_greeting",
            Greeting.unpack_untrusted,
            BadMessage,
            (seeds.DOCTOR_GREETING,),
            ("dlcpd.doctor.greeting:Greeting.unpack_untrusted",),
        ),
        Target("store", _store, BadMessage, (seeds.introduction(),)),
        Target("signed", _signed, BadMessage, (seeds.signed_introduction(),)),
        Target(
            "public_keys",
            lambda data: parse_public_untrusted(_text(data), "x"),
            BadConfig,
            (seeds.IDENTITY.public.text().encode(),),
            ("dlcpd.daemon.peers.key_files:parse_public_untrusted",),
        ),
        Target(
            "identity",
            lambda data: parse_identity_untrusted(_text(data), "x"),
            BadConfig,
            (seeds.IDENTITY.text().encode(),),
            ("dlcpd.daemon.peers.key_files:parse_identity_untrusted",),
        ),
        Target(
            "config",
            lambda data: parse_config(_text(data), "x"),
            BadConfig,
            (seeds.CONFIG.encode(), b""),
        ),
        Target(
            "ledger",
            lambda data: list(records_untrusted(data, may_be_torn=False)),
            BadLedger,
            (LEDGER,),
            ("dlcpd.ledger.frames:records_untrusted", "dlcpd.ledger.frames:record_at_untrusted"),
        ),
        Target(
            "ledger_record",
            _ledger_record,
            BadLedger,
            tuple(encode_record(record) for record in RECORDS),
            ("dlcpd.ledger.records:decode_untrusted",),
        ),
        Target(
            "mask",
            _mask,
            BadLedger,
            (b"\x40\x00" + ENDED.lost[0].mask, b"\x08\x00\x01\x0f"),
            ("dlcpd.ledger.masks:unpack_untrusted", "dlcpd.ledger.masks:count_untrusted"),
        ),
        Target(
            "mask_paths",
            unpack_paths_untrusted,
            BadLedger,
            (b"", b"\x00\x02\x00\x03\x01\x00"),
            ("dlcpd.ledger.masks:unpack_paths_untrusted",),
        ),
        Target(
            "traffic_classes",
            lambda data: parse_traffic_classes(_text(data)),
            BadConfig,
            (seeds.traffic_classes(),),
        ),
        Target(
            "intent",
            lambda data: parse_intent(_text(data), "x"),
            BadIntent,
            tuple(text.encode() for text in (WHOLE, *EXAMPLES.values())),
        ),
    )
}
