"""A batch script is taken where a spec file is asked for."""

from pathlib import Path

import pytest

from corral.cli.main import run, with_script
from corral.cli.slurm.install import install
from corral.cli.slurm.script_file import spec_of_script
from corral.domain.errors import Conflict, SpecInvalid
from corral.wire.slurm.shims import COMMANDS


def test_a_batch_script_is_a_spec_and_other_files_are_left_to_their_reader(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -N2 --gres=gpu:4 -J train\nsrun hostname\n")
    spec = spec_of_script(script)
    assert spec is not None
    assert (spec["name"], spec["nodes"], spec["resources"]) == (
        "train",
        2,
        {"cpu": 1, "gpu": 4},
    )
    other = tmp_path / "job.yaml"
    other.write_text("name: train\nrun: true\n")
    assert spec_of_script(other) is None
    assert spec_of_script(tmp_path / "gone.yaml") is None


def test_a_batch_script_comes_with_its_arguments_and_needs_no_dashes(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -J train\necho $1\n")
    plain = tmp_path / "plain.sh"
    plain.write_text("#!/bin/bash\necho $1\n")
    words = ["run", "-d", str(script), "--lr", "3"]
    assert with_script(words) == ["run", "-d", "--", str(script), "--lr", "3"]
    for others in (
        ["run", str(plain)],
        ["run", "--", str(script)],
        ["apply", str(script)],
    ):
        assert with_script(others) == others
    spec = spec_of_script(script, ["--lr", "3"])
    assert spec is not None
    assert spec["run"] != (spec_of_script(script) or {})["run"]


def test_options_beside_a_batch_script_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -J train\n")
    assert run(["run", "--gpus", "2", "--dry-run", str(script)]) == 2
    assert "options of corral run do not apply to" in capsys.readouterr().err


def test_what_slurm_would_refuse_is_refused_with_the_file_and_a_hint(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --reservation=x\n")
    with pytest.raises(SpecInvalid, match=r"train\.sbatch.*--reservation") as refused:
        spec_of_script(script)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("options", "why", "hint"),
    [
        ("--comment='a b", "a quotation mark is not closed", "closing quotation mark"),
        ("-J train \\", "nothing follows the last \\", "remove the last"),
    ],
)
def test_a_line_that_cannot_be_split_is_named_with_its_fault(
    tmp_path: Path, options: str, why: str, hint: str
) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text(f"#!/bin/bash\n#SBATCH {options}\n")
    with pytest.raises(SpecInvalid) as refused:
        spec_of_script(script)
    assert f"line 2 of the script: {why}: #SBATCH {options}" in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.hint.endswith("in line 2")


def test_shims_are_put_over_shims_and_over_nothing_else(tmp_path: Path) -> None:
    install(into=tmp_path)
    install(into=tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(COMMANDS)
    (tmp_path / "squeue").write_text("#!/bin/sh\n# somebody's own\n")
    with pytest.raises(Conflict):
        install(into=tmp_path)
    install(into=tmp_path, force=True)
    assert "corral.cli.slurm squeue" in (tmp_path / "squeue").read_text()
