"""The fields `checkpoint.path` and `checkpoint.bandwidth`: their forms, and what reaches
the ranks."""

import json

import pytest

from corral.domain.errors import SpecInvalid
from corral.domain.job import CheckpointRule
from corral.domain.store_url import StoreUrl, is_store_url, parse_store_url
from corral.wire.spec_reader import parse_specs
from corral.wire.submission import to_domain
from corral.wire.written_spec import written_spec


def read(fields: str) -> CheckpointRule:
    text = f"name: a\nrun: x\ncheckpoint: {{{fields}}}\n"
    (spec,) = to_domain(parse_specs(text, source="job.yaml"))
    assert spec.checkpoint is not None
    again = to_domain(parse_specs(json.dumps(written_spec(spec)), source="x"))[0]
    assert again.checkpoint == spec.checkpoint, "it is written as it was read"
    return spec.checkpoint


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://bucket//a", "gs://bucket/a"),
        ("az://container", "az://container"),
        ("/shared/a//b", "/shared/a//b"),  # the caller's machine made it absolute
    ],
)
def test_an_address_of_a_store_is_kept_in_normal_form(path: str, normal: str) -> None:
    assert read(f"path: {path!r}").path == normal
    assert is_store_url(path) == ("://" in path)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("s3://", "names no bucket"),
        ("s3:///a", "names no bucket"),
        ("s3://bucket/../other", "object stores do not resolve"),
        ("s3://bucket/a?b", "contains"),
        ("ftp://host/a", "cannot be stored in ftp://"),
    ],
)
def test_an_address_that_no_store_has_is_refused_with_an_example(
    path: str, text: str
) -> None:
    with pytest.raises(SpecInvalid, match=text) as caught:
        read(f"path: {path!r}")
    assert "s3://bucket/prefix" in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("written", "size"),
    [("500MB/s", 500_000_000), ("1GiB/s", 1024**3), (" 2 GB/s ", 2_000_000_000)],
)
def test_a_bandwidth_is_bytes_a_second(written: str, size: int) -> None:
    assert read(f"path: /c, bandwidth: {written!r}").bandwidth_bytes == size
    assert read("path: /c").bandwidth_bytes is None


@pytest.mark.parametrize("written", ["500MB", "fast", "1KB/s", "0", "500"])
def test_another_bandwidth_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(SpecInvalid) as caught:
        read(f"path: /c, bandwidth: {written!r}")
    assert "500MB/s" in f"{caught.value} {caught.value.hint}"


def test_the_parts_of_an_address() -> None:
    url = parse_store_url("s3://bucket/a/b")
    assert (url.scheme, url.bucket, url.key, url.name) == ("s3", "bucket", "a/b", "b")
    assert url.parent / "c" == StoreUrl("s3://bucket/a/c")


def test_saves_in_memory_can_be_turned_off() -> None:
    assert read("path: /c").local
    assert read("path: /c, local: auto").local
    assert not read("path: /c, local: off").local
    with pytest.raises(SpecInvalid, match="auto"):
        read("path: /c, local: 3")
