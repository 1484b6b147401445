"""What a person reads who wrote a spec wrong: the line, what was asked, and what to
write.

Golden: run with CORRAL_UPDATE_GOLDEN=1 to write the file anew, then read the diff.
"""

import os
from pathlib import Path

import pytest

from corral.domain.errors import SpecInvalid
from corral.wire.field_readers import shown
from corral.wire.spec_reader import parse_specs, read_specs
from corral.wire.submission import to_domain

GOLDEN = Path(__file__).with_name("spec_errors.txt")
OK = "name: train\nrun: x\n"
WRONG = [
    "",
    "just words",
    "- name: a",
    "name: a\n  run: x",
    "name: [a",
    "name: a\nrun: x\nname: b",
    "run: x",
    "name: train",
    "name: train\nrun:",
    "name: train\nrun: ''",
    "name: train\nrun: []",
    "name: train\nrun: [python a.py, 3]",
    "name: ../../etc/passwd\nrun: x",
    "name: a b; rm -rf /\nrun: x",
    "name: $(id)\nrun: x",
    "name: -x\nrun: x",
    "name: " + "a" * 64 + "\nrun: x",
    "name: 7\nrun: x",
    "name: true\nrun: x",
    "name: größe\nrun: x",
    OK + "begin: 16:00",
    OK + "begin: 2026-11-22T08:00",
    OK + "begin: 30",
    OK + "start_by: [1h]",
    OK + "start_by: 1969-01-01T00:00Z",
    OK + "begin: 2h\nstart_by: 1h",
    OK + "deadline: 2h",
    OK + "max_duration: 1m\nwarn: {before: 2m}",
    OK + "warn: KILL@2m",
    OK + "warn: {signal: 9}",
    OK + "constraints: [gpu]",
    OK + "constraints: {zone: {in: a}}",
    OK + "constraints: {nvme: false}",
    OK + "constraints: {zone: []}",
    OK + "constraints: {'a b': c}",
    OK + "nodelist: n1",
    OK + "topology: require:row",
    OK + "topology: {mode: spread, within: rack}",
    OK + "watch: 5m",
    OK + "watch: alert",
    OK + "watch: 3",
    OK + "watch: {hang: 2s}",
    OK + "watch: {hang: soon}",
    OK + "watch: {hang: 30}",
    OK + "watch: {act: kill}",
    OK + "watch: {hnag: 5m}",
    OK + "switches: 1",
    OK + "exclusive: yes",
    OK + "apart_from: [a b]",
    OK + "use_spot: true",
    OK + "nodes: 0",
    OK + "nodes: -1",
    OK + "nodes: 1.5",
    OK + 'nodes: "2"',
    OK + "nodes: two",
    OK + "nodes: 1e9",
    OK + "nodes: true",
    OK + "nodes: .nan",
    OK + "nodes: 9223372036854775808",
    OK + "nodes: 2\nnum_nodes: 3",
    OK + "node: 2",
    OK + "time: 4h",
    OK + "walltime: 4:00:00",
    OK + "partition: a100",
    OK + "cpus: 4",
    OK + "mem: 4GB",
    OK + "resources: {mem: 4GB}",
    OK + "gres: gpu:2",
    OK + "depends-on: a",
    OK + "num-gpus: 2",
    OK + "gpus: 8",
    OK + "memory: 4GB",
    OK + "resources: 8",
    OK + "resources: {gpu: -1}",
    OK + "resources: {gpu: 1.5}",
    OK + 'resources: {gpu: "8"}',
    OK + "resources: {gpu: 1e9}",
    OK + "resources: {gpu: 8 gpus}",
    OK + "resources: {gpu: .nan}",
    OK + "resources: {gpu: .inf}",
    OK + "resources: {gpu: true}",
    OK + "resources: {gpu: 0.0001}",
    OK + "resources: {gpu: h100:}",
    OK + "resources: {gpu: 'h100:-1'}",
    OK + "resources: {gpu: 'h100:x'}",
    OK + "resources: {gpu: 'h100:8:2'}",
    OK + "resources: {accelerators: {H100: 8, A100: 8}}",
    OK + "resources: {gpu: [h100]}",
    OK + "resources: {gpus: -1}",
    OK + "resources: {cpu: -1}",
    OK + "resources: {cpu: '8'}",
    OK + "resources: {cpu: many}",
    OK + "resources: {memory: 32}",
    OK + "resources: {memory: '32'}",
    OK + "resources: {memory: 32XB}",
    OK + "resources: {memory: -1GB}",
    OK + "resources: {memry: 32GB}",
    OK + "resources: {path: x}",
    OK + "any_of: {nodes: 4}",
    OK + "any_of: [{nodes: 0}]",
    OK + "any_of:\n  - nodes: 4\n    resources: {gpu: -2}",
    OK + "queue: a/b",
    OK + "priority: urgent",
    OK + "priority: 1.5",
    OK + "priority: 100000",
    OK + "max_duration: 4",
    OK + "max_duration: four hours",
    OK + "max_duration: 0s",
    OK + "max_duration: -4h",
    OK + "max_duration: 99999d",
    OK + "env: [A=b]",
    OK + "env: {A: true}",
    OK + "env:\n  A:",
    OK + "env: {1A: b}",
    OK + "env: {RANK: 0}",
    OK + "env: {CORRAL_JOB_ID: j1}",
    OK + "env: {A: [1]}",
    OK + 'env: {A: "a\\0b"}',
    OK + "secrets: HF_TOKEN",
    OK + "secrets: {HF_TOKEN: hf_abc}",
    OK + "secrets: [a-b]",
    OK + "workdir: 3",
    OK + "setup: 3",
    OK + "per: rank",
    OK + "per: gpu",
    OK + "image: [a]",
    OK + "checkpoint: 3",
    OK + "checkpoint: {}",
    OK + "checkpoint: {path: ./c, interval: often}",
    OK + "checkpoint: {path: ./c, interval: 60}",
    OK + "checkpoint: {path: ./c, keep: 0}",
    OK + "checkpoint: {dir: ./c}",
    OK + "retry: 3",
    OK + "retry: {infra: -1}",
    OK + "retry: {users: 1}",
    OK + "disconnect: kill",
    OK + "self_stop: never",
    OK + "grace: 1w",
    OK + "elastic: {min_nodes: 1}",
    OK + "elastic: {min_nodes: 2, max_nodes: 4}",
    OK + "elastic: {min_nodes: 4, max_nodes: 1}",
    OK + "after: [{job: a/b}]",
    OK + "after: [{job: a, on: success}]",
    OK + "after: 3",
    OK + "after: train",
    OK
    + "after: b\n---\nname: b\nrun: x\nafter: [{job: c}]\n---\nname: c\nrun: x\nafter: train",
    OK + "---\n" + OK + "---\nname: late\nrun: x\nafter: train",
    OK + "array: 10",
    OK + "array: 0-99%0",
    OK + "array: 9-0",
    OK + "array: 0-10000",
    OK + "array: 0-999999999",
    OK + "array: a-b",
    "name: " + "a" * 63 + "\nrun: x\narray: 0-9",
    OK + "kind: serivce",
    OK + "kind: Ray",
    OK + "kind: qeues",
    OK + "kind: queues",
    "kind: qeues",
    OK + "kind: service",
    OK + "kind: ray\nper: gpu\nresources: {gpu: 2}",
    OK + "on: done",
    OK + "file_mounts: {/a: b}",
    "nam: train\nrun: x\nnodes: 0\nresources:\n  gpu: -1\n  cpus: lots",
    OK + "run_as: !!python/object/apply:os.system [id]",
    OK + "nodes: !!int 3",
    OK + "? [a, b]\n: c",
    OK + "env: *nothing",
    OK + "env:\n\tA: b",
    OK + "env: " + "[" * 10_000,
    "a: &a ["
    + "x," * 9
    + "]\n"
    + "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
        for old, new in zip("abcdefg", "bcdefgh", strict=True)
    ),
]


def told(text: str, source: str = "job.yaml") -> str:
    with pytest.raises(SpecInvalid) as refused:
        to_domain(parse_specs(text, source=source, toml=source.endswith(".toml")))
    return f"{refused.value.message}\n  -> {refused.value.hint}\n"


def shortened(text: str) -> str:
    return text if len(text) < 400 else text[:100] + "..."


def test_every_mistake_is_told_with_its_line_and_what_to_write() -> None:
    found = "".join(f"{shortened(text)}\n== \n{told(text)}\n\n" for text in WRONG)
    if os.environ.get("CORRAL_UPDATE_GOLDEN"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_refusal_names_the_file_and_what_to_do(text: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        to_domain(parse_specs(text, source="job.yaml"))
    assert refused.value.message.startswith("job.yaml")
    assert refused.value.hint
    assert len(refused.value.message) < 5000
    assert refused.value.message.isprintable() or "\n" in refused.value.message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('name = "a"\nrun = "x"\nnodes = -1\n', 3),
        ('name = "a"\nrun = "x"\n[resources]\n# four\ngpu = "8"\n', 5),
        ('name = "a"\nrun = "x"\nnodes = \n', 3),
        ('name = "a"\nname = "b"\n', 2),
        ('name = "a"\nrun = "x"\nresources = {gpu = -1}\n', 3),
        ('name = "a"\nrun = "x"\n[[any_of]]\nnodes = 1\n[[any_of]]\nnodes = 0\n', 6),
        ('name = "a"\nrun = "x"\nmax_duration = 12:30:00\n', 3),
    ],
)
def test_toml_is_told_by_line_too(text: str, line: int) -> None:
    assert f"job.toml:{line}: " in told(text, "job.toml")


def test_what_was_written_is_shown_as_it_was_but_for_what_cannot_be_seen() -> None:
    assert shown("ünï") == '"ünï"'
    assert shown("a\u202eb\x07") == '"a\\u202eb\\u0007"'
    assert len(shown("ü" * 100)) == 60


def test_toml_that_is_too_deep_is_refused() -> None:
    assert "job.toml" in told(
        'name = "a"\nenv = ' + "[" * 5000 + "]" * 5000, "job.toml"
    )


def test_a_file_that_is_not_there_too_large_or_no_text_is_refused(
    tmp_path: Path,
) -> None:
    large, binary, folder = (
        tmp_path / "l.yaml",
        tmp_path / "b.yaml",
        tmp_path / "f.yaml",
    )
    large.write_text(OK + "#" * 1_000_001)
    binary.write_bytes(b"name: a\nrun: \xff\xfe\n")
    folder.mkdir()
    for path, word in (
        (tmp_path / "none.yaml", "no such file"),
        (large, "bytes"),
        (binary, ":2: this is not UTF-8"),
        (folder, "directory"),
    ):
        with pytest.raises(SpecInvalid, match=word) as refused:
            read_specs(path)
        assert str(path) in refused.value.message
        assert refused.value.hint


@pytest.mark.parametrize(
    ("image", "text", "hint"),
    [
        ("-x", "'-x' is not a valid image", "write: image: ubuntu:24.04"),
        ("UPPER/x", "'UPPER/x' is not an image reference", "image: nvcr.io/"),
        ("dir:/etc", "'dir:/etc' is not an image of a registry", "oci-archive:"),
        ("/data/x.tar", "is a path, but not of an Apptainer", "oci-archive:"),
        ("oci:x", "its path is not absolute", "image: oci-archive:/data/x.tar"),
        ("a" * 2000, "the name of the image has 2000 characters", "shorter name"),
    ],
)
def test_a_bad_image_is_refused_with_its_line(image: str, text: str, hint: str) -> None:
    found = told(OK + f"image: {image}")
    assert found.startswith("job.yaml:3: image: ")
    assert text in found
    assert hint in found.split("->")[1]


def test_a_secret_cannot_have_the_name_of_a_variable_of_corral() -> None:
    found = told(OK + "secrets: [RANK]")
    assert "RANK is set by Corral" in found
    assert "-> use another name" in found


@pytest.mark.parametrize("time", ["20261122T0800", "2026-11-22 08:00", "20261122"])
def test_a_time_without_a_zone_is_repeated_with_one(time: str) -> None:
    found = told(OK + f"begin: '{time}'")
    assert "has no time zone" in found
    assert "write: begin: 2026-11-22T0" in found
    assert ":00:00Z, or with +02:00 instead of Z" in found
