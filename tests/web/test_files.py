"""The pages' files: what is answered, how long it is kept, and what a page may do."""

import gzip
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from corral.web import Pages

HASHED = "assets/index-abc123.js"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "static/assets").mkdir(parents=True)
    (tmp_path / "static/index.html").write_text("<title>Corral</title>")
    (tmp_path / "static" / HASHED).write_text("plain")
    (tmp_path / "static" / f"{HASHED}.gz").write_bytes(gzip.compress(b"packed"))
    (tmp_path / "secret.json").write_text("{}")
    return tmp_path / "static"


def browser(folder: Path) -> TestClient:
    return TestClient(Pages(PlainTextResponse("the API"), folder))


@pytest.mark.parametrize(
    "path", ["/", "/jobs", "/jobs/j1", "/nodes/gpu-7.rack2", "/plan/train"]
)
def test_each_address_of_a_page_answers_with_the_page_anew(
    folder: Path, path: str
) -> None:
    answer = browser(folder).get(path)
    assert answer.text == "<title>Corral</title>"
    assert answer.headers["cache-control"] == "no-cache"


def test_a_page_may_ask_no_other_host_and_run_nothing_that_is_written_into_it(
    folder: Path,
) -> None:
    said = browser(folder).get("/").headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in said.split(";"))
    assert (
        rules["default-src"]
        == rules["base-uri"]
        == rules["frame-ancestors"]
        == "'none'"
    )
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in said


def test_what_has_its_content_in_its_name_is_kept_for_ever(folder: Path) -> None:
    answer = browser(folder).get(f"/{HASHED}")
    assert "immutable" in answer.headers["cache-control"]


@pytest.mark.parametrize(
    ("taken", "text"), [("identity", "plain"), ("br, gzip", "packed")]
)
def test_what_the_build_has_packed_goes_to_who_takes_it(
    folder: Path, taken: str, text: str
) -> None:
    answer = browser(folder).get(f"/{HASHED}", headers={"Accept-Encoding": taken})
    assert answer.text == text
    assert answer.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/gone-1.js",
        "/../secret.json",
        "/%2e%2e/secret.json",
        "/a%2f..%2f..%2fsecret.json",
        f"/{'a' * 300}.js",
    ],
)
def test_a_file_that_is_none_of_the_pages_is_not_found(folder: Path, path: str) -> None:
    assert browser(folder).get(path).status_code == 404


@pytest.mark.parametrize("path", ["/v1/status", "/healthz", "/metrics"])
def test_all_else_is_the_apis(folder: Path, path: str) -> None:
    assert browser(folder).get(path).text == "the API"
    assert browser(folder).post("/").text == "the API"


def test_pages_that_are_not_built_say_how_to_build_them(tmp_path: Path) -> None:
    assert "make ui" in browser(tmp_path / "none").get("/jobs").text
