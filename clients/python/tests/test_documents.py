"""What the pages show runs: the quickstart, the tutorial's worker and test, and the examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from servers import PATIENCE, REPOSITORY, Server

CLIENT = Path(__file__).resolve().parents[1]
README = CLIENT / "README.md"
TUTORIAL = REPOSITORY / "docs" / "tutorials" / "python-worker.md"


def code_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def run(path: Path, *arguments: str) -> str:
    command = [sys.executable, str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", [0, 1])
def test_the_quickstart_runs(server: Server, tmp_path: Path, block: int) -> None:
    source = code_blocks(README)[block]
    assert "127.0.0.1:7421" in source
    program = tmp_path / "quickstart.py"
    program.write_text(source.replace("127.0.0.1:7421", server.address))
    assert run(program).startswith("settling under token ")


def test_the_worker_of_the_tutorial_is_short_and_runs(server: Server, tmp_path: Path) -> None:
    source = code_blocks(TUTORIAL)[0]
    assert len([line for line in source.splitlines() if line.strip()]) <= 15
    program = tmp_path / "worker.py"
    program.write_text(source)
    assert [line.split(" under")[0] for line in run(program, server.address).splitlines()] == ["job 0", "job 1", "job 2"]


@pytest.mark.parametrize("page", [README, TUTORIAL], ids=["readme", "tutorial"])
def test_the_shown_tests_pass(tmp_path: Path, page: Path) -> None:
    (source,) = (block for block in code_blocks(page) if "def test_" in block)
    path = tmp_path / "test_shown.py"
    path.write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=tmp_path,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("example", "lines"),
    [("lock.py", 3), ("leader.py", 1), ("queue_worker.py", 3)],
)
def test_an_example_runs(server: Server, example: str, lines: int) -> None:
    assert len(run(CLIENT / "examples" / example, server.address).splitlines()) == lines


def test_the_wheel_alone_runs_the_quickstart(server: Server, tmp_path: Path) -> None:
    profile = os.environ.get("LEASEHOLD_CLIENT_PROFILE", "dev")
    (wheel,) = (REPOSITORY / "target" / "python" / f"wheels-{profile}").glob("leasehold-*.whl")
    python = tmp_path / "empty" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "empty"], check=True)
    options = ["-q", "--disable-pip-version-check", "--no-index"]
    subprocess.run([str(python), "-m", "pip", "install", *options, str(wheel)], check=True, cwd=tmp_path)
    program = tmp_path / "quickstart.py"
    program.write_text(code_blocks(README)[0].replace("127.0.0.1:7421", server.address))
    done = subprocess.run([python, "-I", program], capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    assert (done.stdout.split(" ")[0], done.stderr) == ("settling", "")
    # What needs no package of others; the other fences name theirs as extras.
    modules = ["aio", "testing", "fence.asgi", "fence.conninfo", "fence.http", "fence.sqlite", "fence.wsgi"]
    imports = "; ".join(f"import leasehold.{module}" for module in modules)
    subprocess.run([python, "-I", "-c", imports], check=True, cwd=tmp_path)


def test_every_exported_name_is_documented() -> None:
    import leasehold

    undocumented = [name for name in leasehold.__all__ if not getattr(leasehold, name).__doc__]
    assert not undocumented
