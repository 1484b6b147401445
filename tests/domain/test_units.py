"""Amounts read as people write them, and read back the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.units import (
    bytes_of,
    count_of,
    counted,
    duration_text,
    gpus_text,
    seconds_of,
    size_text,
    span_text,
    written_duration,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("30m", 1800), ("4h", 14400), ("1d12h", 129600), ("2w", 1209600),
        ("1.5h", 5400), (" 4H ", 14400), ("2-12:00:00", 216000), ("12:00:00", 43200),
        ("30:00", 1800), ("2-12:00", 216000), ("0s", 0),
    ],
)  # fmt: skip
def test_a_duration_is_read_in_every_spelling(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "4", "-4h", "4 hours", "h", "4h30", "1:2:3:4", "12:0", "٣h", "1e3s", "4h\n5x"],
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid duration; write for example"):
        seconds_of(text)


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_slurms_form_and_ours_agree(
    days: int, hours: int, minutes: int, seconds: int
) -> None:
    slurm = f"{days}-{hours}:{minutes:02}:{seconds:02}"
    assert seconds_of(slurm) == seconds_of(f"{days}d{hours}h{minutes}m{seconds}s")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256GB", 256 * 1000**3), ("64GiB", 64 * 1024**3), ("64Gi", 64 * 1024**3), ("1k", 1000),
        ("1.5 MB", 1_500_000), ("7", 7), ("7b", 7), ("2TiB", 2 * 1024**4), ("0", 0),
    ],
)  # fmt: skip
def test_a_size_is_read_in_powers_of_1000_and_of_1024(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize(
    ("text", "count"),
    [("200", 200), ("50k", 50_000), ("1.5M", 1_500_000), ("2G", 2 * 10**9)],
)
def test_a_count_has_a_decimal_suffix(text: str, count: int) -> None:
    assert count_of(text) == count


@pytest.mark.parametrize("text", ["", "M", "-1", "5MB", "5 M", "1e6", "1,000"])
def test_what_is_no_count_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid count; write for example"):
        count_of(text)


@pytest.mark.parametrize(
    "text", ["", "GB", "-1GB", "1XB", "1 G B", "1e9", "١GB", "1,5GB"]
)
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid size; write for example"):
        bytes_of(text)


@given(st.integers(0, 10**16))
def test_a_size_for_people_is_true_within_half_a_percent(size: int) -> None:
    assert abs(bytes_of(size_text(size)) - size) <= 0.005 * size


@given(st.floats(0, 10**7))
def test_a_duration_for_people_is_true_within_its_last_unit(seconds: float) -> None:
    text = duration_text(seconds)
    back = seconds_of(text.replace(" min", "m").replace(" ", ""))
    last_unit = {"s": 0.1, "min": 60, "h": 3600, "d": 86400}[text.split()[-1]]
    if last_unit == 3600 and seconds < 48 * 3600:  # "3 h" is said of 3 h 0 min
        last_unit = 60
    assert abs(back - seconds) <= max(last_unit, 3600 if "d" in text else 0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (4.25, "4.2 s"),
        (720, "12 min"),
        (12000, "3 h 20 min"),
        (7200, "2 h"),
        (187200, "2 d 4 h"),
    ],
)
def test_a_duration_for_people_is_short(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.integers(0, 10**6))
def test_gpus_for_people_read_back_exactly(millis: int) -> None:
    assert round(float(gpus_text(millis)) * 1000) == pytest.approx(millis, rel=1e-5)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.0, 0.0, "within 1 s"),
        (0.0, 29.5, "within 30 s"),
        (12.9, 61.0, "in 12 to 61 s"),
        (30.0, 300.0, "within 5 min"),
        (725.0, 2395.0, "in 12 to 40 min"),
        (600.0, 600.0, "in 10 min"),
        (3601.0, 90_000.0, "in 1 to 25 h"),
        (90_000.0, 400_000.0, "in 1 to 5 d"),
        (7200.0, None, "in more than 2 h"),
        (0.0, None, "at an unknown time"),
    ],
)
def test_a_span_is_told_in_one_unit_and_rounded_outwards(
    low: float, high: float | None, text: str
) -> None:
    assert span_text(low, high) == text


@given(
    st.floats(0.001, 1e8).map(lambda seconds: round(seconds, 3)) | st.integers(1, 10**8)
)
def test_a_written_duration_reads_back(seconds: float) -> None:
    assert seconds_of(written_duration(seconds)) == pytest.approx(seconds)


def test_a_written_duration_is_in_the_largest_unit_that_is_exact() -> None:
    texts = [written_duration(one) for one in (172800, 7200, 5400, 61, 0.5)]
    assert texts == ["2d", "2h", "90m", "61s", "0.5s"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 nodes"),
        (1, "1 node"),
        (2, "2 nodes"),
        (2_048, "2,048 nodes"),
        (2.5, "2.5 nodes"),
    ],
)
def test_one_of_a_thing_is_told_in_the_singular(count: float, text: str) -> None:
    assert counted(count, "node") == text


def test_a_plural_may_be_its_own_word() -> None:
    assert counted(2, "switch", "switches") == "2 switches"
    assert counted(1, "switch", "switches") == "1 switch"
