"""Whatever is done to the log, the walk names the first entry that is not as it was
written."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.audit_chain import (
    Anchor,
    ChainEntry,
    UnchainedDigest,
    next_link,
    walk_chain,
)

OLD, OWN = "old", "own"


def check(link: str, seal: str) -> bool | None:
    """Seals of the test: KEY:LINK; the key `old` was rotated away."""
    key, _, sealed = seal.partition(":")
    return sealed == link if key == OWN else None


def log(entries: int, unchained: int = 2, rotated_at: int = 4) -> list[ChainEntry]:
    found: list[ChainEntry] = []
    digest = UnchainedDigest()
    before = ""
    for number in range(1, entries + 1):
        record = f"record {number}"
        if number <= unchained:
            digest.add(number, record)
            found.append(ChainEntry(number=number, record=record, link=None, seal=None))
            continue
        before = next_link(before or digest.link(), number, record)
        seal = f"{OLD if number < rotated_at else OWN}:{before}"
        found.append(ChainEntry(number=number, record=record, link=before, seal=seal))
    return found


def fault(entries: list[ChainEntry], anchor: Anchor | None = None) -> str:
    return walk_chain(entries, check, anchor).fault


def relinked(entries: list[ChainEntry]) -> list[ChainEntry]:
    """As whoever writes to the store, and has no key, would: every link fits again."""
    digest, before, found = UnchainedDigest(), "", []
    for place, entry in enumerate(entries, start=1):
        if entry.link is None:
            digest.add(place, entry.record)
        else:
            before = next_link(before or digest.link(), place, entry.record)
            entry = replace(entry, link=before)
        found.append(replace(entry, number=place))
    return found


def test_a_log_is_whole_over_a_rotation_and_with_entries_from_before_the_chain() -> (
    None
):
    whole = log(8)
    found = walk_chain(whole, check)
    assert (found.fault, found.entries, found.unchained) == ("", 8, 2)
    assert (found.number, found.link) == (8, whole[-1].link)
    assert fault(log(3, unchained=0, rotated_at=1)) == ""
    assert fault([]) == "the log is empty: entry 1 is missing"
    assert "entry 2 has no link of the hash chain, and neither" in fault(log(2))


@given(data=st.data())
def test_no_entry_is_changed_removed_or_exchanged_without_being_named(
    data: st.DataObject,
) -> None:
    whole = log(8)
    at = data.draw(st.integers(0, 7))
    changed = list(whole)
    changed[at] = replace(changed[at], record="another")
    named = max(at + 1, 3)  # those before the chain are bound by its first link
    assert f"entry {named}" in fault(changed)
    assert fault(relinked(changed)) != ""
    if at < 7:
        gone = whole[:at] + whole[at + 1 :]
        assert fault(gone) != ""
        assert fault(relinked(gone)) != ""
    if at >= 2:
        assert (
            fault([*whole[:at], replace(whole[at], intact=False), *whole[at + 1 :]])
            != ""
        )
        assert (
            fault([*whole[:at], replace(whole[at], link=None), *whole[at + 1 :]]) != ""
        )


def test_entries_that_no_present_key_has_sealed_are_not_believed() -> None:
    whole = log(8)
    forged = relinked([*whole[:5], replace(whole[5], record="another"), *whole[6:]])
    assert fault(forged) == ("the seal of entry 6 was not made with this cluster's key")
    stripped = [replace(one, seal=None) if one.number > 5 else one for one in forged]
    assert "entry 6 and the entries after it are not sealed" in fault(stripped)
    renamed = [
        replace(one, seal=f"{OLD}:{one.link}") if one.number > 5 else one
        for one in forged
    ]
    assert "entry 6 and the entries after it are not sealed" in fault(renamed)


def test_a_log_that_was_cut_off_at_its_end_is_noticed_by_an_anchor() -> None:
    whole = log(8)
    anchor = Anchor(number=8, link=whole[-1].link or "")
    assert fault(whole, anchor) == ""
    assert fault(log(9), anchor) == ""
    assert fault(whole[:6]) == ""
    assert fault(whole[:6], anchor) == "entries 7 to 8 are missing"
    assert "entry 8 differs" in fault(whole, replace(anchor, link="0" * 64))


@pytest.mark.parametrize("twice", [3, 8])
def test_an_entry_that_stands_twice_is_named(twice: int) -> None:
    whole = log(8)
    assert f"entry {twice} is duplicated" in fault([*whole[:twice], whole[twice - 1]])
