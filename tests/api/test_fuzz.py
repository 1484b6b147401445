"""Generated requests from the API's own description: never a server's error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok

from tests.api.heads import TOKENS, Head, serving

HEADERS = {"Authorization": f"Bearer {TOKENS['admin']}"}


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    with serving(Path(tmp_path_factory.mktemp("fuzzed"))) as head:
        yield head


def test_no_generated_request_meets_a_server_error(fuzzed: Head) -> None:
    schema = schemathesis.openapi.from_dict(fuzzed.app.openapi())
    asked: set[str] = set()
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if operation.path.endswith("/logs") or operation.path.endswith("/events"):
            continue  # streams are asked below, with a bound of their own

        @given(case=operation.as_strategy())
        @settings(
            max_examples=25,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: schemathesis.Case[Any]) -> None:
            answer = case.call(base_url=fuzzed.url, headers=HEADERS)
            assert answer.status_code < 500, answer.text

        ask()
        asked.add(f"{operation.method} {operation.path}")
    assert len(asked) >= 20


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from(
        ["/v1/jobs/x/logs", "/v1/events", "/v1/jobs/x/events", "/v1/jobs"]
    ),
    query=st.dictionaries(
        st.sampled_from(["after", "rank", "attempt", "tail", "limit", "all"]),
        st.text(max_size=12) | st.integers().map(str),
        max_size=3,
    ),
    last=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=10),
)
def test_no_query_meets_a_server_error(
    fuzzed: Head, path: str, query: dict[str, str], last: str
) -> None:
    with fuzzed.http() as http:
        try:
            answer = http.get(
                path, params=query, headers={"Last-Event-ID": last.strip()}
            )
        except httpx2.InvalidURL:
            return
        assert answer.status_code < 500, answer.text
