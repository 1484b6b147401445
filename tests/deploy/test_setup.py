"""`deploy/setup.py`: which build of PyTorch, what it shows, and lists that agree with
the lock."""

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def setup() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "deploy" / "setup.py"))


def arguments_with(
    setup: dict[str, Any], *, driver: bool, index: bool
) -> tuple[str, list[str]]:
    choose = setup["pytorch_arguments"]
    choose.__globals__["has_nvidia_driver"] = lambda: driver
    choose.__globals__["_answers"] = lambda url: index
    title, arguments = choose("torch==2.13.0")
    return title, arguments


def test_pytorch_for_cpus_is_installed_where_no_nvidia_driver_answers(
    setup: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    index = setup["CPU_INDEX"]
    _, with_driver = arguments_with(setup, driver=True, index=True)
    _, without_driver = arguments_with(setup, driver=False, index=True)
    title, without_index = arguments_with(setup, driver=False, index=False)
    assert with_driver == ["torch==2.13.0"]
    assert without_driver == ["torch==2.13.0", "--extra-index-url", index]
    assert without_index == ["torch==2.13.0"]
    assert "does not answer" in title


def test_a_step_shows_the_package_and_the_download_that_pip_is_at(
    setup: dict[str, Any],
) -> None:
    step = setup["Step"]("libraries", packages=2)
    step.take("Collecting numpy==2.5.5")
    assert step.status(3.0) == "  libraries: 3 s, 1 of 2, numpy"
    step.take("  Downloading https://files/x/numpy-2.5.5.whl (16.6 MB)")
    assert (
        step.status(5.0)
        == "  libraries: 5 s, 1 of 2, downloading numpy-2.5.5.whl (16.6 MB)"
    )


def test_the_list_of_the_build_holds_the_same_files_as_the_lock() -> None:
    lock = runpy.run_path(str(ROOT / "deploy" / "lock.py"))
    entries = lock["blocks_of"](
        lock["DEV"].read_text(), lock["closure"](lock["BUILDING"])
    )
    assert lock["BUILD"].read_text().split("\n", 1)[1] == entries
