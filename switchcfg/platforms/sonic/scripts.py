"""Shell scripts for a SONiC switch: snapshot, patch, reload, and the restore of each. Pure.

A script's file is in the folder of the auto-revert: `$dir`, or `${0%/*}` in a restore script.
"""

from typing import Final

from switchcfg.platforms.platform import Step

CHECKPOINT: Final = "switchcfg"
TIMEOUT: Final = 900.0  # seconds for one script; SONiC's own tests allow a patch as much
PATIENCE: Final = 600  # seconds that ports may take to come up after a reload
SNAPSHOT: Final = "sonic-cfggen -d --print-data"
ROLL_BACK: Final = f"""\
[ -e "${{0%/*}}/checkpoint" ] || exit 0  # nothing was done
config rollback {CHECKPOINT}
config delete-checkpoint {CHECKPOINT}
"""
# A patch back would be refused as well. -f: the reload to undo may still be running.
RELOAD_BACK: Final = f"""\
before=${{0%/*}}/before.json
if [ ! -e "$before" ] || {SNAPSHOT} | cmp -s - "$before"; then exit 0; fi  # nothing was done
config reload -y -f "$before"
"""
MERGE: Final = """\
import json, sys

def merge(target, patch):  # RFC 7396
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value

whole = json.load(open(sys.argv[1]))
merge(whole, json.load(open(sys.argv[2])))
json.dump(whole, sys.stdout, indent=4)
"""


def script(step: Step) -> str:
    """Shell commands that run a step."""
    return _reloading(step) if step.minutes else _patching(step)


def _patching(step: Step) -> str:
    """Apply a step's patch. The first step takes the checkpoint that the restore uses."""
    return (
        'if [ ! -e "$dir/checkpoint" ]; then\n'
        f"    config delete-checkpoint {CHECKPOINT} >/dev/null 2>&1 || :\n"
        f"    config checkpoint {CHECKPOINT}\n"
        '    : >"$dir/checkpoint"\n'
        "fi\n"
        f"cat >\"$dir/patch\" <<'PATCH'\n{step.payload}\nPATCH\n"
        'config apply-patch "$dir/patch"\n'
    )


def _reloading(step: Step) -> str:
    """Reload with a step's changes; ends when all ports that were up are up again."""
    return f"""\
dir=${{0%/*}}
up() {{
    sonic-db-cli APPL_DB KEYS 'PORT_TABLE:Ethernet*' | sort | while read -r key; do
        state=$(sonic-db-cli APPL_DB HGET "$key" oper_status)
        if [ "$state" = up ]; then echo "${{key#PORT_TABLE:}}"; fi
    done
}}
up >"$dir/up"
cat >"$dir/patch" <<'PATCH'
{step.payload}
PATCH
cat >"$dir/merge" <<'MERGE'
{MERGE}
MERGE
{SNAPSHOT} >"$dir/now.json"
python3 -I "$dir/merge" "$dir/now.json" "$dir/patch" >"$dir/after.json"
mv "$dir/now.json" "$dir/before.json"
config reload -y "$dir/after.json"
down() {{ up | comm -13 - "$dir/up"; }}
tries={PATIENCE // 5}
while [ -n "$(down)" ]; do
    tries=$((tries - 1))
    if [ "$tries" = 0 ]; then
        echo "ports that were up did not come up again:" $(down)
        exit 1
    fi
    sleep 5
done
"""
