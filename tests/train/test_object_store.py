"""Saves in an object store: whatever happens to requests and processes, the newest
published save loads, and an older attempt publishes nothing."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from corral.domain.errors import CorralError
from corral.domain.keep_rule import KeepRule
from corral.domain.store_url import StoreUrl, parse_store_url
from corral.store import object_client
from corral.store.object_client import StoreRefused
from corral.train.save.checkpoint_store import Fenced
from corral.train.save.manifest import MANIFEST, Broken
from corral.train.save.object_restore import StoredSave
from corral.train.save.object_store import claim_prefix, remove_saves
from tests.train.object_saves import (
    QUICK,
    ROOT,
    At,
    choosing,
    load_newest,
    load_save,
    names_below,
    opened,
    published_folders,
    save_step,
    shelf_at,
)
from tests.train.s3_server import (
    Fault,
    MemoryBucket,
    Request,
    S3Server,
    fill_env,
    serving,
)

pytestmark = pytest.mark.train
pytest.importorskip("obstore")
TRANSIENT = [
    Fault.UNAVAILABLE,
    Fault.CUT_BEFORE,
    Fault.CUT_AFTER,
    Fault.CUT_BODY,
    Fault.LATE,
]


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture
def server(bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setattr(object_client, "PART_BYTES", 1000)  # three parts a file
    with serving(bucket) as server:
        fill_env(monkeypatch, server.env())
        yield server


def test_killed_at_any_request_the_newest_save_loads_and_the_next_is_made(
    server: S3Server, bucket: MemoryBucket
) -> None:
    number = 0
    while True:
        number += 1
        for last_fault in (Fault.DENIED, Fault.CUT_AFTER):
            bucket.objects.clear()
            save_step(opened(1), 20)
            at = At(number, last_fault, always=Fault.DENIED)
            with choosing(server, at), suppress(CorralError):
                save_step(opened(2), 30)
            assert load_newest() in [(1, 20), (2, 30)]
            save_step(opened(3), 40)
            assert load_newest() == (3, 40)
            assert names_below(bucket.objects) == published_folders()
        if at.met is None:
            break
    assert number > 12


@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_fault_of_a_single_request_is_retried(
    server: S3Server, bucket: MemoryBucket, fault: Fault
) -> None:
    shelf = opened(1)
    for number in range(1, 40, 3):
        step = 10 * number
        with choosing(server, at := At(number, fault)):
            save = save_step(shelf, step)
        server.carry_out_late()
        load_save(save)
        if at.met is None:
            return
    raise AssertionError("a save makes more requests than expected")


def test_an_upload_whose_end_took_effect_without_an_answer_is_made_again(
    server: S3Server,
) -> None:
    shelf = opened(1)
    cut: list[str] = []

    def cut_first_end(request: Request) -> Fault | None:
        is_end = request.method == "POST" and "uploadId" in request.query
        if not is_end or cut:
            return None
        cut.append(request.key)
        return Fault.CUT_AFTER

    server.choose = cut_first_end
    load_save(save_step(shelf, 10))
    assert cut


@pytest.mark.parametrize("fault", [None, Fault.LATE, Fault.CUT_AFTER])
def test_an_attempt_that_is_fenced_at_any_request_publishes_nothing_more(
    server: S3Server, bucket: MemoryBucket, fault: Fault | None
) -> None:
    number = 0
    while True:
        number += 1
        bucket.objects.clear()
        old = opened(1)
        save_step(old, 10)
        seen: list[set[str]] = []

        def fence(seen: list[set[str]] = seen) -> None:
            opened(2)
            seen.append(published_folders())

        with (
            choosing(server, at := At(number, fault, then=fence)),
            suppress(CorralError),
        ):
            save_step(old, 20)
        server.carry_out_late()
        if at.met is None:
            break
        assert published_folders() == seen[0]
        assert load_newest() in [(1, 10), (1, 20)]
        with pytest.raises(Fenced):
            save_step(old, 30)
        save_step(opened(3), 40)
        assert load_newest() == (3, 40)
    assert number > 8


def test_a_restarted_process_of_the_same_attempt_fences_the_one_before(
    server: S3Server, bucket: MemoryBucket
) -> None:
    first = opened(1)
    save_step(first, 10)
    target = first.begin(20)
    second = opened(1)
    with pytest.raises(Fenced, match="newer process"):
        first.publish(20, target, b"{}")
    save_step(second, 20)
    save_step(second, 20)
    assert load_newest() == (1, 20)
    assert [slot.step for slot in second.saves()] == [20, 10]


def test_a_publication_whose_answer_never_came_is_not_lost_and_not_half_removed(
    server: S3Server, bucket: MemoryBucket
) -> None:
    shelf = opened(1)

    def is_publication(request: object) -> Fault | None:
        headers = getattr(request, "headers", {})
        return Fault.LATE if headers.get("if-none-match") == "*" else None

    server.choose = is_publication
    with pytest.raises(CorralError):
        save_step(shelf, 10)
    server.choose = lambda request: None
    server.carry_out_late()
    assert load_newest() == (1, 10)
    save_step(shelf, 20)
    assert load_newest() == (1, 20)


def test_a_late_upload_of_a_failed_save_does_not_change_the_save_that_followed(
    server: S3Server, bucket: MemoryBucket
) -> None:
    shelf = opened(1)
    server.choose = lambda request: (
        Fault.LATE if request.key.endswith("index.pickle") else None
    )
    with pytest.raises(CorralError):
        save_step(shelf, 10)
    server.choose = lambda request: None
    save = save_step(shelf, 10)
    before = {
        key: value for key, value in bucket.objects.items() if save.url.key in key
    }
    server.carry_out_late()
    after = {key: value for key, value in bucket.objects.items() if key in before}
    assert after == before
    assert published_folders() == {save.url.text.removeprefix(f"{ROOT}/")}
    assert len(names_below(bucket.objects)) == 2  # it did come, elsewhere


def test_saves_are_pruned_by_the_rule_and_pinned_ones_stay(
    server: S3Server, bucket: MemoryBucket
) -> None:
    shelf = opened(1)
    for step in (10, 20, 30, 40, 50):
        save_step(shelf, step)
    committed = [(1, step) for step in (10, 20, 30, 40)]
    rule = KeepRule(last=2)
    removed = shelf.prune(committed, rule=rule, pinned=[(1, 10)])
    assert [slot.step for slot in removed] == [20]
    assert [slot.step for slot in shelf.saves()] == [50, 40, 30, 10]
    assert names_below(bucket.objects) == published_folders()
    opened(2)
    with pytest.raises(Fenced):
        shelf.prune(committed, rule=KeepRule(last=1))
    assert [slot.step for slot in shelf.saves()] == [50, 40, 30, 10]


def test_the_number_of_a_removed_newest_save_is_not_used_again(
    server: S3Server, bucket: MemoryBucket
) -> None:
    old = opened(1)
    newest = save_step(old, 10)
    target = old.begin(20)
    remove_saves([newest.url])
    opened(2)
    with pytest.raises(Fenced):
        old.publish(20, target, b"{}")
    assert shelf_at(2).saves() == []


def test_a_quarantined_save_keeps_its_files_and_is_not_listed(
    server: S3Server, bucket: MemoryBucket
) -> None:
    shelf = opened(1)
    save_step(shelf, 10)
    damaged = save_step(shelf, 20)
    shelf.put_aside(damaged.url, "a bit flipped")
    assert load_newest() == (1, 10)
    opened(2)
    assert bucket.objects[f"{damaged.url.key}/why.txt"] == b"a bit flipped\n"
    assert f"{damaged.url.key}/rank-00000-000.bin" in bucket.objects
    with pytest.raises(Broken, match="missing"):
        load_save(damaged)


def test_a_part_that_arrives_changed_is_fetched_again_once(
    server: S3Server, bucket: MemoryBucket
) -> None:
    save = save_step(opened(1), 10)
    with choosing(server, at := At(3, Fault.CORRUPT)):
        load_save(save)
    assert at.met is not None
    server.choose = lambda request: (
        Fault.CORRUPT if request.key.endswith("1-000.bin") else None
    )
    with pytest.raises(Broken, match="rank-00001-000.bin was changed"):
        load_save(save)


def test_a_second_copy_of_the_manifest_stands_in_for_the_first(
    server: S3Server, bucket: MemoryBucket
) -> None:
    save = save_step(opened(1), 10)
    key = f"{save.url.key}/{MANIFEST}"
    bucket.objects[key] = bucket.objects[key].replace(b"10", b"11", 1)
    load_save(save)
    del bucket.objects[key]
    load_save(save)


@pytest.mark.parametrize("fault", [Fault.EXPIRED, Fault.DENIED])
def test_a_key_that_expires_fails_the_save_at_once_and_harms_no_older_one(
    server: S3Server, fault: Fault
) -> None:
    shelf = opened(1)
    save_step(shelf, 10)
    at = At(1, fault, always=fault)
    with choosing(server, at), pytest.raises(StoreRefused) as caught:
        save_step(shelf, 20)
    assert at.count < 5  # none was repeated
    assert "refuses access to s3://bucket" in str(caught.value)
    assert "AWS_ACCESS_KEY_ID" in (caught.value.hint or "")
    assert load_newest() == (1, 10)
    save_step(shelf, 30)
    assert load_newest() == (1, 30)


def test_a_bucket_that_is_not_there_is_refused_by_name(server: S3Server) -> None:
    with pytest.raises(StoreRefused, match="there is no bucket s3://other"):
        shelf_at(1, parse_store_url("s3://other/x")).open()


def test_two_jobs_with_one_prefix_save_apart(server: S3Server) -> None:
    place = parse_store_url("s3://bucket/shared")
    assert claim_prefix(place, "j1", QUICK) == place
    assert claim_prefix(place, "j2", QUICK) == StoreUrl("s3://bucket/shared/j2")
    assert claim_prefix(place, "j1", QUICK) == place


def test_without_a_head_each_run_is_the_next_attempt(server: S3Server) -> None:
    assert [opened(0).attempt for _ in range(3)] == [1, 2, 3]


def test_a_broken_entry_of_the_log_is_no_save_and_frees_no_number(
    server: S3Server, bucket: MemoryBucket
) -> None:
    shelf = opened(1)
    save_step(shelf, 10)
    save_step(shelf, 20)
    newest = max(key for key in bucket.objects if "/log/" in key)
    bucket.objects[newest] = b"{}" + bucket.objects[newest][2:]
    assert load_newest() == (1, 10)
    save_step(opened(2), 30)
    assert load_newest() == (2, 30)


def test_the_save_before_a_broken_one_is_taken(server: S3Server) -> None:
    save = save_step(opened(1), 10)
    stale = StoredSave(url=save.url, attempt=1, step=11)
    with pytest.raises(Broken, match="another save"):
        load_save(stale)


def test_without_any_credentials_the_refusal_names_the_variables() -> None:
    client = object_client.ObjectClient(url=ROOT, env={})
    text = "Error performing PUT http://169.254.169.254/latest/api/token"
    fault = client._fault(RuntimeError(text))
    assert isinstance(fault, StoreRefused)
    assert "AWS_ACCESS_KEY_ID" in (fault.hint or "")
