"""A release: its metadata, its guards, and that its workflow calls what there is."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dlcpd.build import PROJECT_URL, linked, project_urls
from tests.pages import ROOT

WORKFLOW: Final = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
JOBS: Final[dict[str, Any]] = WORKFLOW["jobs"]


def scripts(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_nothing_is_published_before_everything_was_tested() -> None:
    assert set(JOBS["publish"]["needs"]) == {"tests", "wheels", "packages"}
    assert JOBS["image"]["needs"] == ["tests"]
    assert ".ci/run" in scripts(JOBS["tests"])
    for name, job in JOBS.items():
        publishes = name in ("publish", "image")
        assert ("environment" in job) is publishes, "a person approves what is published"
        assert ("id-token" in job.get("permissions", {})) is publishes
        assert job["timeout-minutes"] <= 120


def test_every_file_that_the_workflow_names_exists() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    files = set(re.findall(r"(?<![\w/.-])(?<!\{{ )(?:\.ci|deploy|dlcpd)/[\w./-]*\w", text))
    assert files == {".ci/run", "deploy/oci/Containerfile", "deploy/release", "dlcpd/build.py"}
    assert all((ROOT / file).exists() for file in files)
    arguments = set(
        re.findall(r"^ARG (\w+)", (ROOT / "deploy/oci/Containerfile").read_text(), re.M)
    )
    [pushed] = [step for step in JOBS["image"]["steps"] if step.get("id") == "push"]
    assert {line.split("=")[0] for line in pushed["with"]["build-args"].splitlines()} <= arguments


def test_both_architectures_are_built() -> None:
    systems = ["ubuntu-24.04", "ubuntu-24.04-arm"]
    assert JOBS["wheels"]["strategy"]["matrix"]["os"] == systems
    assert JOBS["packages"]["strategy"]["matrix"]["os"] == systems


def git(folder: Path, *words: str) -> None:
    as_one = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *as_one, *words], check=True, capture_output=True)


def test_a_checkout_with_changes_is_not_released(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    (folder / "deploy").mkdir(parents=True)
    script = folder / "deploy" / "release"
    script.write_bytes((ROOT / "deploy" / "release").read_bytes())
    script.chmod(0o755)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "x")
    script.write_text(script.read_text() + "\n")
    done = released(script, tmp_path / "out")
    assert done.returncode == 2 and "differ from its commit" in done.stderr
    (tmp_path / "out" / "old.whl").touch()
    done = released(script, tmp_path / "out")
    assert done.returncode == 2 and "is not empty" in done.stderr


def released(script: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(script), str(out)], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("version", ["0.1.0", "0.1.0.dev7+g1a2b3c4"])
def test_links_of_the_readme_lead_to_the_projects_page(version: str) -> None:
    url, readme = "https://forge.example/o/dlcpd", (ROOT / "README.md").read_text()
    text = linked(readme, f"{version} 1a2b3c4", {PROJECT_URL: f"{url}/"})
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 40 and all(link.startswith(("https://", "#")) for link in links)
    at = "v0.1.0" if version == "0.1.0" else "1a2b3c4"
    assert f"{url}/blob/{at}/docs/deploy.md" in links
    assert f"{url}/raw/{at}/docs/images/concepts.svg" in links
    assert project_urls({PROJECT_URL: url})["Issues"] == f"{url}/issues"


def test_without_a_projects_page_nothing_is_invented() -> None:
    assert linked("[a](docs/a.md)", "0.1.0", {}) == "[a](docs/a.md)"
    assert project_urls({}) == {}
