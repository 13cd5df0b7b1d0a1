"""`config`, `sonic-cfggen`, `sonic-db-cli` and `sonic-db-dump` of a SONiC-like switch, whose
CONFIG_DB is a real Redis.

What upstream's generic configuration updater does that has surprised people: it refuses empty
tables, dangling names and what validators.py says; it takes ports down to bind queues; and
orchagent drops what it does not know, with a line of syslog, while CONFIG_DB keeps it. A reload
asks nobody, and takes all ports down until the services are there again. Written from SONiC's
sources and documents, not from switchcfg.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonpatch
import redis

from tests.switches.sonic import validators

FOLDER = Path(os.environ["SONIC_FOLDER"])
APPL_DB, CONFIG_DB = 0, 4
# Fields that name an object of another table.
NAMES = {
    ("QUEUE", "scheduler"): "SCHEDULER",
    ("QUEUE", "wred_profile"): "WRED_PROFILE",
    ("BUFFER_QUEUE", "profile"): "BUFFER_PROFILE",
    ("BUFFER_PROFILE", "pool"): "BUFFER_POOL",
    ("BUFFER_PG", "profile"): "BUFFER_PROFILE",
    ("PORT_QOS_MAP", "dscp_to_tc_map"): "DSCP_TO_TC_MAP",
    ("PORT_QOS_MAP", "tc_to_queue_map"): "TC_TO_QUEUE_MAP",
    ("PORT_QOS_MAP", "tc_to_pg_map"): "TC_TO_PRIORITY_GROUP_MAP",
    ("PORT_QOS_MAP", "pfc_to_queue_map"): "MAP_PFC_PRIORITY_TO_QUEUE",
}
# Changing these takes an admin-up port down and up (patch_sorter.RequiredValueIdentifier).
FLAPPING = ("QUEUE", "PORT_QOS_MAP", "BUFFER_QUEUE")
# What orchagent knows of a scheduler; YANG also has a priority, for which it drops the entry.
SCHEDULER = {"type", "weight", "meter_type", "cir", "pir", "cbs", "pbs"}
Tables = dict[str, dict[str, dict[str, Any]]]


class RefusedError(Exception):
    pass


def database() -> Any:
    return redis.Redis(unix_socket_path=str(FOLDER / "redis"), db=CONFIG_DB, decode_responses=True)


def read() -> Tables:
    """A field that ends in @ is a list; a lone NULL stands for no field at all."""
    out: Tables = {}
    db = database()
    for full in sorted(db.scan_iter()):
        table, _, key = full.partition("|")
        fields: dict[str, Any] = {}
        for name, value in dict(db.hgetall(full)).items():
            if name.endswith("@"):
                fields[name[:-1]] = value.split(",")
            elif name != "NULL":
                fields[name] = value
        out.setdefault(table, {})[key] = fields
    return out


def write(tables: Tables) -> None:
    with database().pipeline() as pipe:
        pipe.flushdb()
        for table, rows in tables.items():
            for key, fields in rows.items():
                stored = {
                    f"{name}@" if isinstance(value, list) else name: ",".join(value)
                    if isinstance(value, list)
                    else value
                    for name, value in fields.items()
                }
                pipe.hset(f"{table}|{key}", mapping=stored or {"NULL": "NULL"})
        pipe.execute()


def apply_patch(file: str) -> None:
    before = read()
    replace(before, jsonpatch.apply_patch(before, json.loads(Path(file).read_text())))


def replace(before: Tables, tables: Tables) -> None:
    for problem in (*validators.problems(before, tables), *problems(tables)):
        raise RefusedError(problem)
    note("flaps", sorted(flapping(before, tables)))
    note("syslog", sorted(dropped(before, tables)))
    time.sleep(float(os.environ["SONIC_DELAY"]))
    write(tables)
    if made := headroom(before, tables):
        write(made)


def headroom(before: Tables, tables: Tables) -> Tables:
    """What buffermgrd makes of PFC, in its traditional model: rows and profiles that nobody asked
    for, and that it does not take away again (sonic-swss, buffermgr.cpp)."""
    cables = {
        port: length
        for row in tables.get("CABLE_LENGTH", {}).values()
        for port, length in row.items()
    }
    made: Tables = {}
    for port, binding in tables.get("PORT_QOS_MAP", {}).items():
        enabled = binding.get("pfc_enable", "")
        was = before.get("PORT_QOS_MAP", {}).get(port, {}).get("pfc_enable")
        if not enabled or enabled == was or cables.get(port, "0m") == "0m":
            continue
        profile = f"pg_lossless_{tables['PORT'][port]['speed']}_{cables[port]}_profile"
        made.setdefault("BUFFER_PROFILE", {})[profile] = {
            "pool": "ingress_lossless_pool",
            "size": "50176",
            "xon": "19456",
            "xoff": "30720",
            "dynamic_th": "0",
        }
        for priority in enabled.split(","):
            made.setdefault("BUFFER_PG", {})[f"{port}|{priority}"] = {"profile": profile}
    return (
        {**tables, **{name: {**tables.get(name, {}), **rows} for name, rows in made.items()}}
        if made
        else {}
    )


def reload(words: list[str]) -> None:
    """Nothing is validated: what the file says is what the switch is."""
    if (FOLDER / "not ready").exists() and "-f" not in words:
        raise RefusedError(
            "SwSS container is not ready. Retry later or use -f to avoid system checks"
        )
    tables = json.loads(Path(words[-1]).read_text())
    note("reloads", [" ".join(words[:-1])])
    (FOLDER / "down").touch()
    time.sleep(float(os.environ["SONIC_DELAY"]))
    write(tables)
    if not (FOLDER / "stays down").exists():
        (FOLDER / "down").unlink()


def port_table(words: list[str]) -> str:
    """What `sonic-db-cli APPL_DB` says of ports."""
    if words[0] == "KEYS":
        return "".join(f"PORT_TABLE:{port}\n" for port in read()["PORT"])
    port = read()["PORT"][words[1].partition(":")[2]]
    up = port.get("admin_status") == "up" and not (FOLDER / "down").exists()
    return "up\n" if up else "down\n"


def dumped(keys: str) -> dict[str, Any]:
    """Rows of APPL_DB, as redis-dump-load prints them."""
    socket = str(FOLDER / "redis")
    db = redis.Redis(unix_socket_path=socket, db=APPL_DB, decode_responses=True)
    return {
        key: {"type": "hash", "ttl": -0.001, "value": dict(db.hgetall(key))}
        for key in sorted(db.scan_iter(keys))
    }


def problems(tables: Tables) -> Iterator[str]:
    for table, rows in tables.items():
        if not rows:
            yield f"Empty table {table}: data is not valid"
        for key, fields in rows.items():
            for field, value in fields.items():
                target = NAMES.get((table, field))
                if target and value not in tables.get(target, {}):
                    yield f"{table}|{key}: {field} refers to {value}, which {target} does not have"
            if table in FLAPPING and key.partition("|")[0] not in tables.get("PORT", {}):
                yield f"{table}|{key}: no such port"


def flapping(before: Tables, after: Tables) -> set[str]:
    found = set()
    for table in FLAPPING:
        old, new = before.get(table, {}), after.get(table, {})
        for key in old.keys() | new.keys():
            port = key.partition("|")[0]
            up = after["PORT"].get(port, {}).get("admin_status") == "up"
            if up and old.get(key) != new.get(key):
                found.add(port)
    return found


def dropped(before: Tables, after: Tables) -> Iterator[str]:
    for key, fields in after.get("SCHEDULER", {}).items():
        if fields != before.get("SCHEDULER", {}).get(key) and set(fields) - SCHEDULER:
            yield f"ERR swss#orchagent: Failed to process QOS task, drop it: SCHEDULER|{key}"
    for key, fields in after.get("WRED_PROFILE", {}).items():
        low, high = fields.get("green_min_threshold"), fields.get("green_max_threshold")
        changed = fields != before.get("WRED_PROFILE", {}).get(key)
        if changed and low and high and int(low) > int(high):
            yield f"ERR swss#orchagent: Failed to process QOS task, drop it: WRED|{key}"


def note(name: str, lines: list[str]) -> None:
    with (FOLDER / name).open("a") as out:
        out.writelines(f"{line}\n" for line in lines)


def asked(tool: str, words: list[str]) -> str:
    """The answer of a tool that changes nothing."""
    if tool == "sonic-cfggen":
        assert words == ["-d", "--print-data"]
        return json.dumps(read(), indent=4)
    if tool == "sonic-db-dump":
        assert words == ["-n", "APPL_DB", "-k", "LLDP_ENTRY_TABLE:*", "-y"]
        return json.dumps(dumped("LLDP_ENTRY_TABLE:*"), indent=2)
    assert words[0] == "APPL_DB"
    return port_table(words[1:])


def main(words: list[str]) -> int:
    if (tool := os.environ["SONIC_TOOL"]) != "config":
        sys.stdout.write(asked(tool, words))
        return 0
    command, *rest = words
    saved = FOLDER / f"{rest[0]}.cp.json" if rest else FOLDER
    try:
        if command == "apply-patch":
            apply_patch(rest[0])
        elif command == "reload":
            reload(rest)
        elif command == "checkpoint":
            saved.write_text(json.dumps(read()))
        elif command == "rollback":
            replace(read(), json.loads(saved.read_text()))
        elif command == "save":
            (FOLDER / "config_db.json").write_text(json.dumps(read()))
        elif command == "delete-checkpoint":
            saved.unlink()
        else:
            raise RefusedError(f"No such command '{command}'")
    except (RefusedError, FileNotFoundError, KeyError, jsonpatch.JsonPatchException) as exc:
        sys.stderr.write(f"Error: {exc}\n")
        return 2
    sys.stdout.write("Done.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
