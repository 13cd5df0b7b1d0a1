"""All checks of this host, in the order in which their rows are shown."""

import ipaddress
import platform
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from dlcpd.daemon.config.effective import engine_configs, resolved
from dlcpd.daemon.config.tables import Config
from dlcpd.daemon.config.values import AUTO, cpu_numbers
from dlcpd.doctor import daemon, host, interfaces, kernel, keys, topology, tracking
from dlcpd.doctor.rows import Row, warn

Check = tuple[str, Callable[[], Iterable[Row]]]


def local_rows(config: Config, file: Path | None, socket: str) -> Iterator[Row]:
    """Rows of this host. `config` is not resolved; `socket`: where clients connect."""
    for name, check in _checks(config, file, socket):
        try:
            yield from check()
        except OSError as exc:  # a kernel or a container forbids the check
            yield warn(
                name,
                f"cannot be checked: {exc}",
                "try again outside of the container, or as root",
            )


def _checks(written: Config, file: Path | None, socket: str) -> list[Check]:
    config = resolved(written)
    network = config.network
    return [
        ("version", lambda: [daemon.judge_version()]),
        ("configuration", lambda: [daemon.judge_configuration(config, file)]),
        ("data path", lambda: [daemon.judge_data_path(network.data_path, network.data_encryption)]),
        ("daemon, ports and keys", lambda: _daemon(written, config, file, socket)),
        ("topology", lambda: topology.judge_topology(config)),
        ("interfaces", lambda: _interfaces(written, config)),
        ("UDP GSO and GRO", lambda: [_segmentation(offload=network.offload)]),
        (
            "receive buffer",
            lambda: [kernel.judge_buffer(kernel.look_at_buffer(network.receive_buffer))],
        ),
        ("connection tracking", lambda: [_tracking(config)]),
        ("shared memory", lambda: [kernel.judge_sealing(kernel.look_at_sealing())]),
        ("huge pages", lambda: [kernel.judge_huge_pages(kernel.look_at_huge_pages())]),
        ("CPUs", lambda: [_cpus(config)]),
        ("memory", lambda: [host.judge_memory(host.look_at_memory())]),
        ("open files", lambda: [host.judge_descriptors(host.look_at_descriptors())]),
        ("clock", lambda: [host.judge_clock(host.look_at_clock())]),
    ]


def _daemon(written: Config, config: Config, file: Path | None, socket: str) -> list[Row]:
    running = daemon.look_at_daemon(socket)
    wanted = daemon.ports(config)
    taken = daemon.look_at_ports(wanted)
    answers = running.report is not None
    rows = [
        daemon.judge_daemon(running),
        daemon.judge_ports(wanted, taken, config.network.paths, running=answers),
    ]
    if running.report is not None:
        rows.append(daemon.judge_address(running.report))
        rows.append(daemon.judge_granted(running.report, config.network.receive_buffer))
        rows.append(daemon.judge_settings(running.report, written, file))
    loopback = ipaddress.ip_address(config.daemon.control_address).is_loopback
    trusted = keys.look_at_keys(config.security, running.report)
    return [*rows, keys.judge_keys(trusted, loopback=loopback)]


def _interfaces(written: Config, config: Config) -> Iterator[Row]:
    chosen = all(path.address != AUTO for path in written.network.paths)
    used = [path.address for path in config.network.paths]
    return interfaces.judge_interfaces(interfaces.look_at_interfaces(), used, chosen=chosen)


def _tracking(config: Config) -> Row:
    ports = [port for engine in engine_configs(config) for _, port in engine.paths if port]
    return tracking.judge_tracking(tracking.look_at_tracking(ports))


def _segmentation(*, offload: bool) -> Row:
    found = kernel.look_at_segmentation()
    return kernel.judge_segmentation(found, offload=offload, release=platform.release())


def _cpus(config: Config) -> Row:
    network = config.network
    assert isinstance(network.engines, int)  # noqa: S101  # resolved
    pinned = tuple(map(cpu_numbers, network.engine_cpus))
    return host.judge_cpus(host.look_at_cpus(network.engines, pinned))
