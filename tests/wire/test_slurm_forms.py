"""Slurm's forms of lists, times, sizes, ids and names of files."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.wire.slurm import value_forms
from corral.wire.slurm.hostlist import compress, compress_sorted, expand
from corral.wire.slurm.ids import id_of, ids_of, number_of, raw_of
from corral.wire.slurm.paths import file_name
from corral.wire.slurm.slurm_errors import SlurmRefusal

NOW = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)


@given(
    st.lists(
        st.tuples(st.sampled_from(["n", "gpu-", "10.0.0.", "x1y"]), st.integers(0, 30)),
        max_size=20,
    )
)
def test_a_list_of_hosts_unfolds_to_what_it_was_made_of(
    hosts: list[tuple[str, int]],
) -> None:
    names = [f"{prefix}{number}" for prefix, number in hosts]
    assert expand(compress(names)) == names if names else compress(names) == ""


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (["n1", "n2", "n3", "n5"], "n[1-3,5]"),
        (["a08", "a09", "a10", "b"], "a[08-10],b"),
        (["n9", "n10"], "n[9-10]"),
        (["localhost"], "localhost"),
    ],
)
def test_a_list_of_hosts_is_short_and_keeps_its_zeros(
    hosts: list[str], text: str
) -> None:
    assert (compress(hosts), expand(text)) == (text, hosts)


def test_a_listing_has_hosts_in_the_order_of_their_numbers() -> None:
    assert compress_sorted(["n3", "n10", "n2", "login"]) == "login,n[2-3,10]"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01-00:00:01", "1970-01-01T00:00:01"),
        ("1123", "2026-11-23T00:00:00"),
        ("112326-01:02", "2026-11-23T01:02:00"),
        ("11.23", "2026-11-23T00:00:00"),
        ("11.23.26", "2026-11-23T00:00:00"),
        ("11/23/26-10:00", "2026-11-23T10:00:00"),
        ("2026-11-22T16:00:00", "2026-11-22T16:00:00"),
    ],
)
def test_a_date_has_any_of_slurms_forms(text: str, moment: str) -> None:
    assert value_forms.moment(text, NOW).isoformat() == f"{moment}+00:00"


@pytest.mark.parametrize("text", ["1340", "11.23/26", "11232", "1970-01-01+00:00"])
def test_what_is_not_a_date_is_refused(text: str) -> None:
    with pytest.raises(SlurmRefusal, match="Invalid time specification"):
        value_forms.moment(text, NOW)


def test_a_list_that_names_more_than_anybody_has_is_refused_before_it_is_made() -> None:
    with pytest.raises(ValueError, match="names more than 100,000 nodes"):
        expand("r[0-99999]n[0-99999]")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("90:30", 5430), ("1:30:00", 5400), ("2-12", 216_000),
        ("2-12:30", 217_800), ("2-12:30:15", 217_815), ("UNLIMITED", None), ("0", None),
    ],
)  # fmt: skip
def test_a_time_is_in_minutes_unless_it_says_more(
    text: str, seconds: int | None
) -> None:
    assert value_forms.seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4000", 4000 * 2**20),
        ("512K", 2**19),
        ("64G", 2**36),
        ("64GB", 2**36),
        ("1T", 2**40),
    ],
)
def test_a_size_is_in_megabytes_unless_it_says_more(text: str, size: int) -> None:
    assert value_forms.size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now+2hours", "2026-11-22T12:00:00"),
        ("now+60", "2026-11-22T10:01:00"),
        ("16:00", "2026-11-22T16:00:00"),
        ("9:30am", "2026-11-23T09:30:00"),
        ("noon", "2026-11-22T12:00:00"),
        ("2026-12-01", "2026-12-01T00:00:00"),
        ("2026-12-01T08:15", "2026-12-01T08:15:00"),
        ("12/24/26", "2026-12-24T00:00:00"),
    ],
)
def test_a_moment_is_the_next_one_where_it_is_a_time_of_day(
    text: str, moment: str
) -> None:
    assert value_forms.moment(text, NOW).isoformat() == f"{moment}+00:00"


@pytest.mark.parametrize(
    "read", [value_forms.seconds, value_forms.size_bytes, value_forms.signal_number]
)
def test_what_has_no_such_form_is_refused(read: object) -> None:
    with pytest.raises(SlurmRefusal):
        read("soon")  # type: ignore[operator]


def test_ids_are_numbers_and_come_back_from_each_form() -> None:
    assert [number_of("j17"), number_of("j17_3")] == ["17", "17_3"]
    assert [id_of(raw_of(id)) for id in ("j17", "j17_3", "j4_1000000")] == [
        "j17", "j17_3", "j4_1000000",
    ]  # fmt: skip
    assert raw_of("j17_3").isdecimal()
    assert list(ids_of("17,18_3,19_[1-3,7]")) == [
        "j17", "j18_3", "j19_1", "j19_2", "j19_3", "j19_7",
    ]  # fmt: skip
    assert id_of("17.batch") == "j17"
    with pytest.raises(SlurmRefusal):
        id_of("train")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("slurm-%j.out", "slurm-17.out"),
        ("%A_%4a.log", "5_0003.log"),
        ("%x-%u-%%-%q", "train-ann-%-%q"),
        ("a\\%j", "a%j"),
    ],
)
def test_a_files_name_is_filled_in(pattern: str, name: str) -> None:
    known = {"j": "17", "A": "5", "a": "3", "x": "train", "u": "ann"}
    assert file_name(pattern, known) == name
