"""A damaged record is refused with what to do, for each kind of store."""

import pytest

from corral.domain.errors import StoreTrouble
from corral.store.row_codec import check, crc_of


def test_a_damaged_record_says_how_to_save_a_store_of_each_kind() -> None:
    check("job", "{}", crc_of("{}"))
    with pytest.raises(StoreTrouble, match="checksum") as damaged:
        check("job", "{}", crc_of("{}") + 1)
    for command in ("corral restore", "pg_dump", "sqlite3 FILE .recover"):
        assert command in damaged.value.hint
