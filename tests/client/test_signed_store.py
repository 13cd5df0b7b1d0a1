"""Nothing but `SignedStore` reads or writes a job's store."""

import ast
from pathlib import Path

import dlcp_client

ROOT = Path(dlcp_client.__file__).parent
CALLS = {
    "set", "get", "add", "wait", "check", "compare_set", "delete_key", "append", "multi_get",
    "multi_set", "queue_push", "queue_pop",
}  # fmt: skip
# `SignedStore` itself, and the stores.
ALLOWED = {"job/signed_store.py", "job/prefixed_store.py", "numpy/file_store.py"}


def raw_uses(file: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in CALLS:
            receiver = ast.unparse(node.value).rsplit(".", 1)[-1]
            name = receiver.strip("_")
            if name.endswith("store") and name != "signed_store":
                found.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    return found


def test_only_the_signed_store_asks_the_store() -> None:
    files = [file for file in ROOT.rglob("*.py") if str(file.relative_to(ROOT)) not in ALLOWED]
    assert not [use for file in files for use in raw_uses(file)]
    assert raw_uses(ROOT / "job/signed_store.py"), "the search finds what there is"
