import os
import subprocess
import sys
from pathlib import Path
from random import Random

from corral.schedule.arrays.cluster import NodeColumns, cluster_of, give
from corral.schedule.arrays.compiled import IS_COMPILED
from corral.schedule.arrays.fit import ColumnRequest
from corral.schedule.arrays.fragmentation import new_demand
from tests.schedule.columns.places import Taken, put


def decisions(seed: int) -> list[object]:
    """Where 400 jobs go, some of which leave again, and what was learned from them."""
    chance = Random(seed)
    nodes = [
        NodeColumns(
            gpus=chance.choice([0, 2, 4, 8]),
            cpu_millis=chance.choice([16_000, 96_000]),
            memory_mib=chance.choice([100_000, 400_000]),
            gpu_type=chance.randrange(2),
            nvlink=row,
            rack=row // 8,
            pod=row // 32,
        )
        for row in range(150)
    ]
    cluster, demand = cluster_of(nodes), new_demand()
    held: list[Taken] = []
    seen: list[object] = []
    for _ in range(400):
        share = chance.choice([0, 0, 160, 320, 470, 650, 810])
        ask = ColumnRequest(
            nodes=1 if share else chance.choice([1, 1, 1, 3, 12]),
            gpus=0 if share else chance.choice([0, 1, 2, 8]),
            share=share,
            cpu=chance.choice([1000, 3152, 11_400]),
            memory=chance.choice([4_000, 48_000]),
            topology=chance.randrange(3),
            level=chance.randrange(3),
        )
        got = put(cluster, demand, ask)
        seen += [got and [taken[:3] for taken in got]]
        held += got
        while held and chance.random() < 0.3:
            node, mask, millis, was = held.pop(chance.randrange(len(held)))
            give(cluster, node, mask, millis, was.cpu, was.memory, was.alone)
    return [*seen, [float(waste).hex() for waste in demand.part_waste]]


def test_compiled_and_plain_decide_the_same() -> None:
    without = "import sys; sys.modules['numba'] = None; sys.path.insert(0, '.')\n"
    words = "from tests.schedule.test_compiled import IS_COMPILED, decisions\n"
    told = "assert not IS_COMPILED; print(decisions(7))"
    plain = subprocess.run(
        [sys.executable, "-c", without + words + told],
        capture_output=True,
        text=True,
        check=True,
    )
    assert IS_COMPILED
    assert plain.stdout.strip() == str(decisions(7))


def test_what_is_kept_on_disk_is_not_compiled_again(tmp_path: Path) -> None:
    told = (
        "from corral.schedule.columns.late_jobs import protect\n"
        "from corral.schedule.arrays.compiled import *\n"
        "from corral.schedule.columns.locality import level_for, LocalityDelay\n"
        "print(must_compile(level_for)); level_for(1, 5.0, LocalityDelay(1.0, 2.0)); "
        "print(must_compile(level_for), must_compile(protect))"
    )
    found = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, check=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert found.stdout.split() == ["True", "False", "True"]


def test_a_change_in_a_room_within_a_room_is_compiled_anew(tmp_path: Path) -> None:
    inner = tmp_path / "outside" / "inside" / "inner.py"
    inner.parent.mkdir(parents=True)
    for room in (inner.parent, inner.parents[1]):
        (room / "__init__.py").touch()
    use = "from corral.schedule.arrays.compiled import compiled, must_compile\n"
    (inner.parents[1] / "outer.py").write_text(
        f"{use}from outside.inside.inner import answer\n"
        "@compiled\ndef asked(by: int) -> int:\n    return answer(by)\n"
    )
    told = f"{use}from outside.outer import asked; print(must_compile(asked), asked(1))"

    def answered(adding: int) -> list[str]:
        inner.write_text(
            f"{use}@compiled\ndef answer(by: int) -> int:\n    return by + {adding}\n"
        )
        found = subprocess.run(
            [sys.executable, "-B", "-c", told],
            capture_output=True, text=True, check=True, cwd=tmp_path,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")},
        )  # fmt: skip
        return found.stdout.split()

    assert answered(1) == ["True", "2"]
    assert answered(1) == ["False", "2"]
    assert answered(21) == ["True", "22"]


def test_what_is_kept_of_a_class_that_has_moved_is_compiled_anew(
    tmp_path: Path,
) -> None:
    room = tmp_path / "outside"
    room.mkdir()
    (room / "__init__.py").touch()
    use = "from corral.schedule.arrays.compiled import compiled, must_compile\n"
    told = (
        f"{use}from outside.outer import Two, asked; print(must_compile(asked), "
        "asked(Two(1, 2)))"
    )

    def answered(holder: str) -> list[str]:
        pair = "from typing import NamedTuple\nclass Two(NamedTuple):\n    a: int\n    b: int\n"
        (room / f"{holder}.py").write_text(pair)
        (room / "outer.py").write_text(
            f"{use}from outside.{holder} import Two\n"
            "@compiled\ndef asked(two: Two) -> int:\n    return two.a + two.b\n"
        )
        found = subprocess.run(
            [sys.executable, "-B", "-c", told],
            capture_output=True, text=True, check=True, cwd=tmp_path,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")},
        )  # fmt: skip
        return found.stdout.split()

    assert answered("here") == ["True", "3"]
    (room / "here.py").unlink()
    assert answered("there") == ["True", "3"]
    assert answered("there") == ["False", "3"]
