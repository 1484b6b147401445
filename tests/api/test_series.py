"""The route of curves."""

from collections.abc import Iterator, Mapping, Sequence
from math import nan

import pytest

from corral.domain.time_series import Curve
from tests.api.heads import Head, serving


class Kept:
    """A series of one key."""

    def put(self, key: str, at: float, values: Mapping[str, float | None]) -> None: ...

    async def read(
        self, key: str, *, since: float, until: float, fields: Sequence[str] = ()
    ) -> Curve:
        times = [at for at in range(0, 1000, 10) if since <= at <= until]
        rows = {
            "cpu": [0.5 if at else nan for at in times],
            "memory": [1.0 for _ in times],
        }
        return Curve(
            times=times,
            fields={k: v for k, v in rows.items() if not fields or k in fields},
        )

    async def keep(self, now: float) -> None: ...

    async def close(self) -> None: ...


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    with serving(tmp_path_factory.mktemp("head"), series=Kept()) as head:
        yield head


def test_a_curve_is_answered_in_so_many_points_and_what_is_not_known_is_null(
    kept: Head,
) -> None:
    with kept.http("vera") as http:
        asked: dict[str, str | int] = {
            "key": "node:n1",
            "since": 0,
            "until": 1000,
            "fields": "cpu",
        }
        answer = http.get("/v1/series", params=asked).json()
        few = http.get("/v1/series", params=asked | {"points": 10}).json()
    assert answer["fields"] == {"cpu": [None, *[0.5] * 99]}
    assert few["times"] == [100.0 * at for at in range(10)]


@pytest.mark.parametrize(
    "bad",
    [
        {"key": "disk:1"},
        {"key": "clusters"},
        {"key": "cluster:1"},
        {"key": "cluster", "since": 5, "until": 5},
        {"key": "cluster", "points": 0},
    ],
)
def test_what_is_no_curve_is_refused(kept: Head, bad: dict[str, str | int]) -> None:
    with kept.http("vera") as http:
        assert http.get("/v1/series", params=bad).status_code == 422


def test_a_head_that_keeps_none_has_none(head: Head) -> None:
    with head.http("vera") as http:
        assert http.get("/v1/series", params={"key": "cluster"}).json()["times"] == []
