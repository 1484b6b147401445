"""Several nodes of one machine: they see its files as they are, and programs tell them
apart."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.domain.errors import Refusal
from tests.scenarios.house import House, house

MEETS = """
import os, socket
os.write(1, f"met {os.environ['RANK']} on {socket.gethostname()}\\n".encode())
"""


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    with house("--nodes", "2", "--gpus", "2", "--pretend") as made:
        yield made


def printed(here: House, run: str, nodes: int = 1) -> list[str]:
    id = here.submit("looks", run, nodes=nodes, resources={"gpu": 2})
    over = here.until_over(id)
    assert over.state == "DONE", here.logs(id)
    return here.logs(id).split()


def install(library: Path, version: str) -> None:
    """Replace the package as pip does: another folder takes the place of the old
    one."""
    fresh = library / f"~{version}"
    fresh.mkdir(parents=True)
    (fresh / "__init__.py").write_text(f"from parcel.part import NUMBER\n# {version}\n")
    (fresh / "part.py").write_text(f"NUMBER = '{version}'\n")
    shutil.rmtree(library / "parcel", ignore_errors=True)
    fresh.rename(library / "parcel")


def test_each_job_sees_files_and_packages_that_were_replaced_since_the_start(
    here: House,
) -> None:
    folder = here.root.parent / "project"
    folder.mkdir()
    config = folder / "config"
    python = f"PYTHONPATH={folder}/lib {sys.executable} -B -c"
    reads = f"cat {config}; {python} 'import parcel; print(parcel.NUMBER)'"
    for version in ("v1", "v2", "v3"):
        (folder / "edited").write_text(f"{version}\n")
        (folder / "edited").rename(config)  # as an editor writes
        install(folder / "lib", version)
        assert printed(here, reads) == [version, version]
    (folder / "edited").unlink(missing_ok=True)
    printed(here, f"echo result > {folder}/result-$CORRAL_NODE", nodes=2)
    assert sorted(file.name for file in folder.glob("result-*")) == [
        "result-n1",
        "result-n2",
    ]


def test_a_save_below_the_directory_of_the_start_binds_no_job_to_a_node(
    here: House,
) -> None:
    saves = str(here.root.parent / "saves")
    gang = {"name": "gang", "run": "true", "nodes": 2, "checkpoint": {"path": saves}}
    with here.client() as client:
        assert {str(Path.home()), str(here.root.parent)} < set(client.node("n1").shared)
        (planned,) = client.plan(gang)
        assert len(planned.seats) == 2
        with pytest.raises(Refusal, match="not known to share"):
            client.plan({**gang, "checkpoint": {"path": "/opt/saves"}})


def test_a_job_has_the_environment_that_is_active_at_its_submission(
    here: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    done = here.corral(
        "run", "-y", "--no-workdir", "--", "which python; echo $VIRTUAL_ENV"
    )
    assert done.stdout.split() == [str(python), str(tmp_path)]
    assert f"{python}, on nodes that have it" in done.stderr


@pytest.mark.train
def test_torchrun_with_its_own_rendezvous_meets_over_two_nodes(here: House) -> None:
    """The line of PyTorch's documentation, unchanged. What it starts imports nothing
    slow."""
    script = here.root.parent / "meets.py"
    script.write_text(MEETS)
    torchrun = Path(sys.executable).with_name("torchrun")
    run = (
        f"{torchrun} --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d "
        f"--rdzv-endpoint $MASTER_ADDR:$MASTER_PORT {script}"
    )
    id = here.submit("meets", run, nodes=2, per="node", resources={"gpu": 2})
    assert here.until_over(id, seconds=180).state == "DONE", here.logs(id)
    met = sorted(line for line in here.logs(id).splitlines() if line.startswith("met "))
    hosts = [line.split()[-1] for line in met]
    assert [line.split()[1] for line in met] == ["0", "1", "2", "3"]
    assert hosts in (["n1", "n1", "n2", "n2"], ["n2", "n2", "n1", "n1"])
