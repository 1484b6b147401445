"""Records: a damaged one is refused with what to do, for each kind of store, and one
from before a field existed has its default."""

import json
from typing import Any

import pytest

from corral.domain.errors import StoreTrouble
from corral.store.row_codec import SERVICE, check, crc_of
from tests.control.roles import DECODE, PREFILL, apart, replica
from tests.control.services import row, service


def test_a_damaged_record_says_how_to_save_a_store_of_each_kind() -> None:
    check("job", "{}", crc_of("{}"))
    with pytest.raises(StoreTrouble, match="checksum") as damaged:
        check("job", "{}", crc_of("{}") + 1)
    for command in ("corral restore", "pg_dump", "sqlite3 FILE .recover"):
        assert command in damaged.value.hint


def without(record: Any, *fields: str) -> Any:
    """Return the value of a record without these fields, at any depth."""
    if isinstance(record, dict):
        return {
            name: without(value, *fields)
            for name, value in record.items()
            if name not in fields
        }
    if isinstance(record, list):
        return [without(value, *fields) for value in record]
    return record


def test_a_service_that_was_stored_without_roles_reads_as_one_that_has_none() -> None:
    stored, _ = SERVICE.write(service(row(1)))
    old = without(json.loads(stored), "roles", "role", "transfer", "prefill")
    assert SERVICE.decode(json.dumps(old)) == service(row(1))


def test_the_roles_of_a_service_are_stored() -> None:
    pair = apart(replica(1, PREFILL), replica(2, DECODE))
    assert SERVICE.read(*SERVICE.write(pair)) == pair
