"""docs/recipes.md: what it says to type is executed, and its code is that of the recipes."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests import pages
from tests.pages import ROOT, Block, shape
from tests.recipes.test_recipes import HUGGING_FACE, LIMIT, OFFLINE

PAGE: Final = ROOT / "docs" / "recipes.md"
SECTIONS: Final = pages.sections(PAGE)
NEEDS: Final = {
    "Hugging Face Trainer": HUGGING_FACE,
    "Accelerate": ("accelerate",),
    "Lightning": ("pytorch_lightning",),
}
PORTS: Final = {  # a free port, for tests run side by side
    "torchrun": "torchrun --standalone",
    "accelerate launch": "accelerate launch --main_process_port 0",
}
PROGRAM: Final = """
import torch.distributed as dist, torch, sys
dist.init_process_group(dist.Backend.default_device_backend_map["cpu"])
total = torch.ones(3)
dist.all_reduce(total)
print(f"{dist.get_backend()} {total.tolist()} {sys.argv[1:]}\\n", end="", flush=True)
dist.destroy_process_group()
"""


def of(section: str, language: str) -> list[Block]:
    return [block for block in SECTIONS[section][1] if block.language == language]


def code(text: str) -> str:
    """Without indentation and comments behind two spaces."""
    return "\n".join(re.split(r"  # ", line)[0].strip() for line in text.splitlines())


def typed(line: str, folder: Path) -> str:
    """What the line printed, in `folder`."""
    for program, free in PORTS.items():
        line = line.replace(program, free)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.Popen(
        ["bash", "-c", line],
        cwd=folder,
        env={**os.environ, **OFFLINE, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, said = process.communicate(timeout=LIMIT)
    finally:
        if process.poll() is None:  # with its ranks
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said[-8000:]
    return out


@pytest.mark.timeout(300)  # seconds; a section has up to two trainings
@pytest.mark.parametrize("section", [name for name in SECTIONS if of(name, "sh")])
def test_what_a_section_says_to_type_prints_what_it_shows(section: str, tmp_path: Path) -> None:
    for library in NEEDS.get(section, ()):
        pytest.importorskip(library)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for block in of(section, "yaml"):
        (tmp_path / "accelerate.yaml").write_text(block.text)
    [lines], [shown] = of(section, "sh"), of(section, "text")
    out = [typed(line, tmp_path) for line in lines.typed][-1]
    shapes = {shape(line) for line in out.splitlines()}
    assert [line for line in shown.text.splitlines() if shape(line) not in shapes] == [], out


@pytest.mark.parametrize("section", [name for name in SECTIONS if of(name, "python")])
def test_code_is_that_of_the_recipe(section: str) -> None:
    [recipe] = set(re.findall(r"\(\.\./(examples/recipes/\w+\.py)\)", SECTIONS[section][0]))
    source = code((ROOT / recipe).read_text())
    for block in of(section, "python"):
        assert code(block.text) in source, block.text


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    kinds = {block.language for _, blocks in SECTIONS.values() for block in blocks}
    assert kinds == {"python", "sh", "text", "yaml"}
    assert len(pages.blocks(PAGE)) == sum(len(blocks) for _, blocks in SECTIONS.values())


def test_every_recipe_is_on_the_page() -> None:
    files = {file.name for file in (ROOT / "examples" / "recipes").glob("*.py")}
    assert set(re.findall(r"recipes/(\w+\.py)\)", PAGE.read_text())) == files


@pytest.mark.parametrize("how", ["file", "module"])
def test_a_program_that_asks_pytorchs_table_gets_the_backend(how: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    named = "program.py" if how == "file" else "-m program"
    launcher = ROOT / "examples" / "recipes" / "over_dlcp.py"
    line = f"PYTHONPATH=. torchrun --nproc-per-node 2 {launcher} {named} --steps 3"
    assert typed(line, tmp_path).count("dlcp [2.0, 2.0, 2.0] ['--steps', '3']") == 2
