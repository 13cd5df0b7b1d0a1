"""Plans and applies a hundred simulated devices: `python -m tests.switchcfg.hundred [COUNT]`.

Prints seconds of each, and the peak of Python's memory of another run (which measuring slows).
"""

import asyncio
import sys
import time
import tracemalloc
from dataclasses import replace

from switchcfg.cli.rollout import every, roll
from switchcfg.cli.workflow import apply, present
from switchcfg.fabric.order import waves
from switchcfg.intent.intent import Device, parse
from switchcfg.plan.plan import Plan, plan
from switchcfg.platforms.linux.platform import Linux
from tests.switchcfg.intents import NAME
from tests.switchcfg.linux_device import LinuxDevice
from tests.switchcfg.simulated import SimulatedDriver

PORTS = tuple(f"swp{number}" for number in range(1, 33))
TEXT = f"""\
schema = 1
[fabric]
name = "lab"
[[device]]
name = "sw"
platform = "linux"
[[device.ports]]
names = {list(PORTS)}
rate = "100Gbit"
""".replace("'", '"')
INTENT = parse(TEXT, NAME)


def fabric(count: int) -> list[Device]:
    """A canary and two sides."""
    [one] = INTENT.devices
    return [replace(one, name=f"sw{n}", side="AB"[n % 2]) for n in range(count)]


async def both(devices: list[Device]) -> tuple[float, float, int]:
    """Seconds to plan, seconds to apply, changes of all."""
    drivers = {each.name: SimulatedDriver(LinuxDevice(PORTS)) for each in devices}
    linux, plans = Linux(), dict[str, Plan]()

    async def look(device: Device) -> None:
        state = await present(drivers[device.name], linux)
        plans[device.name] = plan(INTENT, device, linux, state)

    async def do(device: Device) -> None:
        driver = drivers[device.name]
        await apply(driver, linux, plans[device.name], seconds=60, tell=lambda _: None)
        await driver.confirm()

    begin = time.perf_counter()
    assert not (await every(devices, look)).failed
    middle = time.perf_counter()
    assert len((await roll(waves(devices), do)).done) == len(devices)
    end = time.perf_counter()
    changes = sum(len(each.changes) for each in plans.values())
    return middle - begin, end - middle, changes


def main() -> None:
    devices = fabric(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    planned, applied, changes = asyncio.run(both(devices))
    tracemalloc.start()
    asyncio.run(both(devices))
    _, peak = tracemalloc.get_traced_memory()
    sys.stdout.write(
        f"{len(devices)} devices of {len(PORTS)} ports, {changes} values: planned in "
        f"{planned:.1f} s, applied in {applied:.1f} s, peak {peak / 2**20:.0f} MiB\n"
    )


if __name__ == "__main__":
    main()
