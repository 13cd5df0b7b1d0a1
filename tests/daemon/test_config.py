"""The configuration file: what it accepts, what it says about the rest, what the engine gets."""

from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.effective import engine_configs, resolved, to_toml
from dlcpd.daemon.config.file import load, parse
from dlcpd.daemon.config.tables import Config, LocalPath
from dlcpd.io.config import EngineConfig

EVERYTHING = """
[daemon]
host = "node 7"
socket = "/tmp/a\\"b.sock"
control_address = "10.0.0.7"
control_port = 7000
socket_group = "trainers"
allowed_users = ["alice", 1001]
max_sessions = 3
max_arena_bytes = 1048576
max_memory_bytes = 8388608
max_session_memory_bytes = 2097152
drain_timeout = 5
log_level = "debug"
log_format = "json"

[network]
paths = [{ address = "10.0.0.7", port = 7001 }, { address = "fd00::7" }]
entropy = 4
engines = 2
engines_per_job = 1
engine_cpus = ["0-2,5", "3"]
segment_size = 8832
chunk_bytes = 140800
receive_buffer = 1048576
window = 2097152
congestion_control = false
layer_priority = false
drop_precedence = "ecn"
bounded_loss = false
alarm_loss = 0.25
offload = false
checksum = "off"
data_path = "numpy"
data_encryption = "aes-256-gcm"
rate_limit_bps = 1e9
suspect_after = 0.5
peer_timeout = 2.5

[security]
identity = "/etc/dlcpd/node7.toml"
authorised = "/etc/dlcpd/peers"
unproved = "refuse"

[checks]
digest_every = 1

[inject]
loss = 0.05
corrupt = 0.125
seed = 9
relays = ["10.0.0.107", "fd00::107"]

[ledger]
directory = "/var/lib/dlcpd/ledger"
inputs = true
max_bytes = 2097152

[metrics]
listen = "[::1]:9464"
web_config = "/etc/dlcpd/web.yml"

[planner]
topology = "/etc/dlcpd/topology.toml"
probe = true
replan = true
"""


def test_every_value_of_a_full_file_arrives() -> None:
    config = parse(EVERYTHING, "x.toml")
    changed = {
        (table.name, setting.name)
        for table in fields(Config)
        for setting in fields(getattr(config, table.name))
        if getattr(getattr(config, table.name), setting.name)
        == getattr(getattr(Config(), table.name), setting.name)
    }
    assert not changed, "values equal to the default prove nothing"
    assert config.daemon.socket_group == "trainers"
    assert config.daemon.allowed_users == ("alice", 1001)
    assert config.network.paths == (LocalPath("10.0.0.7", 7001), LocalPath("fd00::7", 0))
    assert config.daemon.drain_timeout == 5.0
    assert config.metrics.address == ("::1", 9464)


@pytest.mark.parametrize("text", ["", EVERYTHING])
def test_what_is_printed_means_the_same(text: str) -> None:
    config = parse(text, "x.toml")
    assert parse(to_toml(config), "printed") == config


def test_every_setting_of_the_engine_comes_from_the_file() -> None:
    first, told = engine_configs(parse(EVERYTHING, "x.toml"))
    default = EngineConfig()
    same = [
        f.name for f in fields(EngineConfig) if getattr(told, f.name) == getattr(default, f.name)
    ]
    assert not same
    assert (first.cpus, told.cpus, told.rate_limit_bps) == ((0, 1, 2, 5), (3,), 5e8)
    for engine, ports in ((first, range(7001, 7005)), (told, range(7005, 7009))):
        assert engine.paths == (*(("10.0.0.7", port) for port in ports), *[("fd00::7", 0)] * 4)


@pytest.mark.parametrize(("cpus", "engines"), [(1, 1), (15, 1), (16, 2), (64, 4)])
def test_auto_gives_an_engine_to_some_cpus(
    cpus: int, engines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cpus)))
    assert resolved(parse('[network]\nengines = "auto"\n', "x")).network.engines == engines
    pinned = '[network]\nengines = "auto"\nengine_cpus = ["0", "1", "2"]\n'
    assert resolved(parse(pinned, "x")).network.engines == 3


def test_defaults_are_the_engines_own() -> None:
    [told], default = map(asdict, engine_configs(resolved(Config()))), asdict(EngineConfig())
    for here in ("host", "paths", "memory", "session_memory"):
        assert told.pop(here) and default.pop(here)
    assert told == default


def test_auto_becomes_an_address_of_this_host() -> None:
    config = resolved(Config())
    assert config.daemon.host
    assert config.daemon.control_address not in ("", "auto")
    assert config.network.paths[0].address == config.daemon.control_address


def test_resolving_keeps_what_was_given() -> None:
    config = parse(EVERYTHING, "x.toml")
    assert resolved(config) == config
    assert resolved(replace(config, checks=Config().checks)) != config


BAD = {
    "[deamon]\n": ("unknown table [deamon]", "did you mean daemon?"),
    "[zzz]\n": ("unknown table [zzz]", "known: daemon, network, security, checks, inject"),
    '[ledger]\ndirectory = "ledgers"': ("[ledger] directory: 'ledgers' is not an absolute path",),
    "[network]\nsegment_sise = 1": (
        "unknown key segment_sise in [network]",
        "did you mean segment_size?",
    ),
    "[network]\npaths = [{ adress = 'auto' }]": (
        "unknown key adress in [network] paths[0]",
        "did you mean address?",
    ),
    "[network]\nentropy = 17": ("[network] entropy: 17 is outside 1..16",),
    "[network]\nentropy = 9\npaths = [{}, {}]": ("9 source ports on each of 2 paths make 18",),
    "[daemon]\nmax_memory_bytes = 1": ('1 is outside 1048576..1125899906842624; or give "auto"',),
    "[daemon]\nmax_session_memory_bytes = true": ("true is not an integer; or give",),
    "[network]\nengines = 9": ('[network] engines: 9 is outside 1..8; or give "auto"',),
    "[network]\nengines = true": ('[network] engines: true is not an integer; or give "auto"',),
    "[network]\nengine_cpus = '0'": ("engine_cpus: must be a list of at most 8 texts",),
    "[network]\nengine_cpus = ['2-1']": ("engine_cpus: '2-1' names no CPUs; write them like",),
    "[network]\nengine_cpus = ['x']": ("engine_cpus: 'x' names no CPUs",),
    "[network]\nengine_cpus = [3]": ("engine_cpus: 3 names no CPUs",),
    "[network]\nengine_cpus = ['0', '1']": ("CPUs for 2 engines, and engines is 1; give CPUs",),
    "[network]\ndrop_precedence = 'red'": (
        "[network] drop_precedence: 'red' is none of both, dscp",
    ),
    "[network]\ndata_encryption = 'rot13'": ("'rot13' is none of none, aes-256-gcm",),
    "[network]\ndata_encryption = 'aes-256-gcm'\ndata_path = 'compiled'": (
        "[network] data_path: 'compiled' cannot encrypt",
        "remove data_path",
    ),
    "daemon = 1": ("[daemon] must be a table, and not 1",),
    "[daemon]\nhost = 1": ("[daemon] host: 1 is not a text",),
    "[daemon]\nmax_sessions = 0": ("[daemon] max_sessions: 0 is outside 1..1024",),
    "[daemon]\nmax_sessions = true": ("[daemon] max_sessions: true is not an integer",),
    "[daemon]\nmax_sessions = 1.0": ("1.0 is not an integer",),
    "[daemon]\nlog_level = 'loud'": ("[daemon] log_level: 'loud' is none of auto, debug, info",),
    "[daemon]\nallowed_users = 'alice'": ("[daemon] allowed_users: must be a list",),
    "[daemon]\nallowed_users = [true]": ("true is neither a user id nor a name",),
    "[daemon]\nsocket_group = -1": ("[daemon] socket_group: -1 is neither a group id",),
    "[daemon]\nsocket_group = true": ("true is neither a group id",),
    "[daemon]\nsocket_group = []": ("[] is neither a group id",),
    "[daemon]\nallowed_users = [-1]": ("-1 is neither",),
    "[daemon]\nallowed_users = ['']": ("'' is neither",),
    "[daemon]\ncontrol_address = 'localhost'": ("'localhost' is not an IP address",),
    "[daemon]\ncontrol_address = '0.0.0.0'": ("not an address that peers can send to",),
    "[daemon]\ncontrol_address = '::'": ("not an address that peers can send to",),
    "[daemon]\ncontrol_address = '224.0.0.1'": ("not an address that peers can send to",),
    "[daemon]\ncontrol_address = 'fe80::1%eth0'": ("fe80::1%eth0 has a zone, which peers do",),
    "[daemon]\ncontrol_address = 5": ("5 is not an IP address",),
    "[daemon]\ndrain_timeout = nan": ("[daemon] drain_timeout: nan is outside",),
    "[network]\npaths = []": ("[network] paths: must be a list of 1 to 16",),
    "[network]\npaths = 'auto'": ("[network] paths: must be a list of 1 to 16",),
    "[network]\npaths = ['auto']": ("each path must be a table",),
    "[network]\npaths = [{ port = 65536 }]": ("[network] paths[0] port: 65536 is outside",),
    "[network]\nsegment_size = 100": ("[network] segment_size: 100 is not a multiple of 64",),
    "[network]\nsegment_size = 0": ("[network] segment_size: 0 is outside 64..",),
    "[network]\nsegment_size = 8960": ("[network] segment_size: 8960 is outside 64..",),
    "[network]\nsegment_size = '64'": ("[network] segment_size: '64' is not an integer",),
    "[network]\nchunk_bytes = 100": ("[network] chunk_bytes: 100 is not a multiple of 64",),
    "[network]\nchunk_bytes = 4718656": ("[network] chunk_bytes: 4718656 is outside 64..4718592",),
    "[network]\nsegment_size = 64\nchunk_bytes = 262208": ("chunk_bytes: 262208 is above 262144",),
    "[network]\noffload = 1": ("[network] offload: 1 is not true or false",),
    "[inject]\nloss = 1.01": ("[inject] loss: 1.01 is outside 0.0..1.0",),
    '[inject]\nrelays = "::1"': ("[inject] relays: must be a list",),
    '[inject]\nrelays = ["auto"]': ("[inject] relays: must be a list",),
    '[inject]\nrelays = ["host"]': ("[inject] relays[0]: 'host' is not an IP address",),
    '[inject]\nrelays = ["::1", "::2"]': ("[inject] relays: 2 addresses for 1 paths",),
    **{
        f"[metrics]\nlisten = {value}": ("[metrics] listen: ", '"127.0.0.1:9464"')
        for value in (
            "9464",
            "'9464'",
            "'localhost:9464'",
            "'127.0.0.1'",
            "'127.0.0.1:65536'",
            "'::1:9464'",
            "'[127.0.0.1]:9464'",
            "'127.0.0.1:x'",
            "'127.0.0.1:-1'",
            "'[::1:9464'",
            "true",
        )
    },
    "[inject\n": ("line 1",),
}


@pytest.mark.parametrize("text", BAD)
def test_a_mistake_is_named_with_its_place(text: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parse(text, "etc/dlcpd.toml")
    assert str(caught.value).startswith("etc/dlcpd.toml: ")
    for part in BAD[text]:
        assert part in str(caught.value)


def test_too_many_paths_are_refused() -> None:
    rows = ", ".join("{ port = 0 }" for _ in range(17))
    with pytest.raises(BadConfig, match="1 to 16"):
        parse(f"[network]\npaths = [{rows}]", "x")


@pytest.mark.parametrize(
    "text",
    ["x = " + "9" * 5000, "x = " + "[" * 5000, f"[daemon]\ndrain_timeout = 0x1{'0' * 300}",
     f"[daemon]\ncontrol_address = 0x1{'0' * 5000}"],
    ids=["digits", "depth", "no float", "not printable"],
)  # fmt: skip
def test_what_python_itself_refuses_is_a_mistake_of_the_file(text: str) -> None:
    with pytest.raises(BadConfig, match=r"x\.toml: "):
        parse(text, "x.toml")


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read: No such file"), (b"\xff\xfe", "is not UTF-8 text: is it a config")],
    ids=["missing", "not_utf8"],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "dlcpd.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadConfig, match=rf"dlcpd\.toml: {said}"):
        load(file)


def test_a_private_daemon_logs_less() -> None:
    assert resolved(Config()).daemon.log_level == "info"
    assert resolved(Config(), embedded=True).daemon.log_level == "warning"
    asked = parse('[daemon]\nlog_level = "debug"\n', "x")
    assert resolved(asked, embedded=True).daemon.log_level == "debug"
