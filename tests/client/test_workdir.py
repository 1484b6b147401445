"""A workdir as a snapshot: the same for the same content, and nothing that should stay
out."""

import json
import os
import tarfile
from pathlib import Path

import pytest

from corral.client.workdir_snapshot import notes_on, pack
from corral.domain.errors import SpecInvalid, TooLarge


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(root: Path) -> list[str]:
    with pack(root) as snapshot:
        snapshot.file.seek(0)
        with tarfile.open(fileobj=snapshot.file, mode="r:gz") as tar:
            return tar.getnames()


def digest(root: Path) -> str:
    with pack(root) as snapshot:
        return snapshot.sha256


def test_the_same_content_has_the_same_digest_whatever_its_times_owners_and_order(
    tmp_path: Path,
) -> None:
    one = tree(tmp_path / "one", {"a.py": "1", "b/c.py": "2", "z": "3"})
    two = tree(tmp_path / "two", {"z": "3", "b/c.py": "2", "a.py": "1"})
    os.utime(two / "a.py", (1, 1))
    (two / "z").chmod(0o600)
    assert digest(one) == digest(two)
    (two / "z").chmod(0o700)
    assert digest(one) != digest(two)  # a script that may be run is another content
    (one / "a.py").write_text("4")
    assert digest(one) != digest(two)
    with pack(one) as snapshot:
        header = next(snapshot.pieces())[:10]
    assert header[3:8] == bytes(5)  # no name, no time


def test_what_is_ignored_stays_out_and_the_deepest_file_has_the_last_word(
    tmp_path: Path,
) -> None:
    root = tree(
        tmp_path,
        {
            ".git/config": "x",
            ".gitignore": "*.bin\n/data/\n!keep.bin\n",
            ".corralignore": "*.mp4\n!model.bin\n",
            "a.bin": "x",
            "keep.bin": "x",
            "model.bin": "x",
            "b.mp4": "x",
            "data/x": "x",
            "src/data/y": "x",
            "src/.gitignore": "*.log\n!b.mp4\n",
            "src/run.log": "x",
            "src/b.mp4": "x",
            "__pycache__/m.pyc": "x",
        },
    )
    assert names(root) == [
        ".corralignore",
        ".gitignore",
        "keep.bin",
        "model.bin",
        "src",
        "src/.gitignore",
        "src/b.mp4",
        "src/data",
        "src/data/y",
    ]


def test_links_inside_are_kept_and_links_outside_are_refused(tmp_path: Path) -> None:
    root = tree(tmp_path / "w", {"a/b": "x"})
    (root / "link").symlink_to("a/b")
    (root / "a" / "up").symlink_to("../link")
    assert names(root) == ["a", "a/b", "a/up", "link"]
    for target in ("/etc/passwd", "../outside", "a/../../x"):
        out = root / "out"
        out.symlink_to(target)
        with pytest.raises(SpecInvalid, match="points outside") as refused:
            digest(root)
        assert ".corralignore" in refused.value.hint
        out.unlink()
    (root / "out").symlink_to("/etc/passwd")
    (root / ".corralignore").write_text("/out\n")
    assert "out" not in names(root)


def test_of_a_virtual_environment_all_is_to_be_left_out_at_once(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "w", {"train.py": "x", "env/py/pyvenv.cfg": "home = /usr/bin"}
    )
    (root / "env/py/bin").mkdir()
    for name in ("python", "python3"):
        (root / "env/py/bin" / name).symlink_to("/usr/bin/python3")
    with pytest.raises(SpecInvalid, match="points outside") as refused:
        digest(root)
    assert f"echo '/env/py/' >> {root}/.corralignore" in refused.value.hint
    (root / ".corralignore").write_text("/env/py/\n")
    assert names(root) == [".corralignore", "env", "train.py"]


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert names(tree(tmp_path, {"a": "x"})) == ["a"]


def test_more_than_the_cap_is_refused_with_the_largest_files(tmp_path: Path) -> None:
    root = tree(
        tmp_path, {"small": "x", "big.bin": "x" * 5000, "bigger.bin": "x" * 6000}
    )
    with pytest.raises(TooLarge) as refused, pack(root, max_bytes=10_000):
        raise AssertionError("it was packed")
    assert "bigger.bin (6 kB), big.bin (5 kB)" in refused.value.message
    assert ".corralignore" in refused.value.hint
    (root / ".corralignore").write_text("*.bin\n")
    assert digest(root)


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecInvalid, match="not a directory"):
        digest(tmp_path / "none")


def test_an_odd_name_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff")).write_text("x")
    try:
        digest(tmp_path)
    except SpecInvalid as refused:
        assert "UTF-8" in refused.message  # noqa: PT017 (packing it is right as well)


def test_a_directory_that_may_not_be_entered_is_told_and_a_file_that_has_gone_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path, {"a.py": "1", "gone.tmp": "x"})
    listed = os.scandir(root)
    (root / "gone.tmp").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", lambda folder: listed)
        assert names(root) == ["a.py"]

    def locked(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", locked)
    with pytest.raises(
        SpecInvalid, match="cannot be read: permission denied"
    ) as refused:
        names(root)
    assert ".corralignore" in refused.value.hint


SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----\nx"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nx"
LINES = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n" * 3  # as of a key; of none
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{LINES}-----END RSA PRIVATE KEY-----\n"
CREDENTIALS = {
    "deploy": KEY,
    "conf/app.yaml": "tls:\n  key: |\n" + KEY.replace("-----BEGIN", "    -----BEGIN"),
    "account.json": json.dumps({"private_key": KEY}),
    "windows.txt": KEY.replace("\n", "\r\n"),
    "backups": f"# created\ncorral-identity-1:{'A' * 43}\n",
    ".ssh/config": "x",
    ".aws/credentials": "x",
    "deep/er/.kube/config": "x",
    ".config/gcloud/x.json": "x",
    ".docker/config.json": "x",
    ".netrc": "x",
    ".env": "KEY=1",
    ".env.local": "KEY=1",
    "server.pem": SECRET,
    "odd.pem": "of a form of its own",
    "id_rsa": "x",
    "id_work": SECRET,
    "tls.key": SECRET,
}
PLAIN = {
    "certificates.py": f'HEADER = b"-----BEGIN PRIVATE KEY-----"\nLINES = """\n{LINES}"""\n',
    "big.bin": "x" * 200_000,
    ".config/app.toml": "x",
    ".env.example": "KEY=",
    "certifi/cacert.pem": CERTIFICATE,
    "data.key": "x",
    "id_map.json": "{}",
    "id_rsa.pub": "ssh-rsa x",
}


def files(root: Path) -> set[str]:
    return {name for name in names(root) if (root / name).is_file()}


def test_credentials_stay_out_and_the_person_is_told(tmp_path: Path) -> None:
    root = tree(tmp_path, {**CREDENTIALS, **PLAIN})
    assert files(root) == PLAIN.keys()
    (said,) = notes_on(root)
    assert said.startswith(
        "left out of the workdir as possible credentials: .aws/, .config/gcloud/, "
    )
    assert (
        f"and 13 more; to send one of them, run: echo '!.aws/' >> {root}/.corralignore"
        in said
    )


def test_a_line_of_corralignore_lets_a_credential_in_and_one_of_gitignore_does_not(
    tmp_path: Path,
) -> None:
    allowed = {".gitignore": "!.netrc\n", ".corralignore": "!.env\n!.ssh/\n"}
    root = tree(tmp_path, {".env": "x", ".ssh/config": "x", ".netrc": "x", **allowed})
    assert files(root) == {".env", ".ssh/config", ".gitignore", ".corralignore"}
    (root / ".netrc").unlink()
    assert notes_on(root) == ()


@pytest.mark.parametrize(
    "held",
    [
        {"head.json": "{}", "key": "k", "corral.db": "x"},
        {"key": "k", "token": "t", "tls/key.pem": "k"},
        {"joined.json": '{"url": "https://h", "node": "n1", "folder": "/x"}'},
        {"node.json": "{}", "token": "t"},
    ],
)
def test_the_directory_of_a_cluster_is_never_sent_whatever_lets_it_in(
    held: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_DIR", str(tmp_path / "elsewhere"))
    inside = {f"deep/c/{name}": text for name, text in held.items()}
    root = tree(
        tmp_path / "p", {"a.py": "1", ".corralignore": "!c/\n!*\n!key\n", **inside}
    )
    assert names(root) == [".corralignore", "a.py", "deep"]
    assert notes_on(root) == (
        "left out of the workdir as the directory of a cluster, never sent: deep/c/",
    )
    for folder in ("deep/c", "deep/c/nodes/n1"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        with pytest.raises(
            SpecInvalid, match="the directory of a cluster, which contains keys"
        ):
            names(root / folder)


def test_ones_own_cluster_is_never_sent_and_projects_in_its_shared_folder_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {
        "c/anything": "x",
        "c/shared/project/a.py": "1",
        "joined.json": '{"rows": 3}',
    }
    root = tree(tmp_path, held)
    monkeypatch.setenv("CORRAL_DIR", str(root / "c"))
    assert names(root) == ["joined.json"]
    assert names(root / "c" / "shared" / "project") == ["a.py"]
    work = tree(
        root / "c" / "nodes" / "n1" / "attempts" / "j1.1" / "work", {"b.py": "1"}
    )
    assert names(work) == ["b.py"]  # a job may submit from its own
