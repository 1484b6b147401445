"""Routes of files: requests of batches, and their results, as OpenAI's API has them."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Final, Literal, TypeVar

from fastapi import APIRouter, Query, Request
from starlette.responses import FileResponse

from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.auth_middleware import MOST_RESULT_BYTES
from corral.api.errors import RequestInvalid
from corral.api.form_upload import FileForm, is_form
from corral.api.jobs import Asker, Within
from corral.api.uploads import paced
from corral.domain.batch import KEPT_SECONDS, FileId, FilePurpose, StoredFile
from corral.domain.errors import Conflict, NotFound
from corral.domain.quota import Quota
from corral.domain.units import size_text
from corral.domain.users import AuditEntry
from corral.serve.batch_file import MOST_FILE_BYTES
from corral.wire import openai_batches as wire

router = APIRouter()
FILES_PATH: Final = "/v1/files"
FORM_BYTES: Final = 64 * 1024  # of a form without its file
MOST_NAME_LETTERS: Final = 200
MOST_LISTED: Final = 10_000
Row = TypeVar("Row")


@router.post(FILES_PATH)
async def create_file(
    request: Request,
    house: Within,
    caller: Asker,
    purpose: Annotated[str, Query(max_length=100)] = "",
    filename: Annotated[str, Query(max_length=MOST_NAME_LETTERS)] = "",
) -> wire.FileObject:
    """Store the file of a form with the fields `file` and `purpose`, or a body of
    another type with `purpose` and `filename` in the query. It is kept for 30 days."""
    content_type = request.headers.get("content-type", "")
    pieces = paced(request.stream())
    form = FileForm(content_type, pieces) if is_form(content_type) else None
    if form is None:
        _check_purpose(purpose)
    file = StoredFile(
        id=FileId(f"file-{house.control.clock.fresh_id()}"),
        owner=caller.name,
        name=filename or "input.jsonl",
        purpose=FilePurpose.BATCH,
        size_bytes=0,
        created_at=house.control.clock.wall(),
        expires_at=house.control.clock.wall() + KEPT_SECONDS,
    )
    size = await _write(
        house, caller, request, file.id, pieces if form is None else form.file()
    )
    name = file.name
    try:
        if form is not None:
            _check_purpose(form.fields.get("purpose", ""))
            name = (form.file_name or name)[:MOST_NAME_LETTERS]
        if not size:
            raise RequestInvalid("the file is empty", hint="send a file with requests")
        stored = _with(file, name, size)
        await house.control.store.put_file(stored, entry=_entry(caller, stored))
    except BaseException:
        house.files.remove(file.id)
        raise
    return wire.FileObject.of(stored)


async def store_result(
    house: House, caller: Caller, request: Request, file: StoredFile
) -> StoredFile:
    """Store the body as a result of a batch; an earlier one with this id is replaced.

    Raises: TooLarge, TooSlow, DiskLow, OverQuota, Trouble, OSError.
    """
    pieces = paced(request.stream())
    size = await _write(house, caller, request, file.id, pieces, is_result=True)
    stored = _with(file, file.name, size)
    await house.control.store.put_file(stored, entry=_entry(caller, stored))
    return stored


def _with(file: StoredFile, name: str, size_bytes: int) -> StoredFile:
    return StoredFile(
        id=file.id,
        owner=file.owner,
        name=name.replace("\0", ""),
        purpose=file.purpose,
        size_bytes=size_bytes,
        created_at=file.created_at,
        expires_at=file.expires_at,
    )


def _entry(caller: Caller, file: StoredFile) -> AuditEntry:
    detail = size_text(file.size_bytes)
    return caller.entry(file.created_at, on=file.id, detail=detail)


def _check_purpose(purpose: str) -> None:
    if purpose != FilePurpose.BATCH:
        raise RequestInvalid(
            f"the purpose {purpose[:40]!r} is not supported",
            hint="send the purpose: batch",
        )


async def _write(
    house: House,
    caller: Caller,
    request: Request,
    id: FileId,
    pieces: AsyncIterator[bytes],
    *,
    is_result: bool = False,
) -> int:
    """Write a file to the disk, and return its size.

    The results of a batch count toward the quota of its owner, and are taken even when
    it is used up: the work for them is done.

    Raises: TooLarge, TooSlow, DiskLow, OverQuota, OSError.
    """
    most_bytes = MOST_FILE_BYTES
    quotas = house.quotas.of_caller(caller)
    used_bytes = (await house.control.store.holdings(caller.name)).upload_bytes
    if not is_result:
        remaining = quotas.limit(Quota.UPLOAD_BYTES) - used_bytes
        most_bytes = min(most_bytes, max(1, remaining))
    else:
        most_bytes = MOST_RESULT_BYTES
    declared = int(request.headers.get("content-length") or 0)
    expected = (
        min(max(1, declared - FORM_BYTES), most_bytes) if declared else most_bytes
    )
    house.disk.check(house.files.root, "this file", declared)
    fresh_id = house.control.clock.fresh_id()
    if is_result:
        return await house.files.put(id, pieces, fresh_id, most_bytes=most_bytes)
    with house.quotas.taking(
        quotas, Quota.UPLOAD_BYTES, used=used_bytes, asked=expected
    ):
        return await house.files.put(id, pieces, fresh_id, most_bytes=most_bytes)


@router.get(FILES_PATH)
async def list_files(
    house: Within,
    caller: Asker,
    purpose: Annotated[str | None, Query(max_length=100)] = None,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = MOST_LISTED,
    order: Literal["asc", "desc"] = "desc",
) -> wire.FileList:
    """Return the caller's files, the newest first."""
    rows = [
        wire.FileObject.of(file)
        for file in await house.control.store.files(owner=caller.name)
        if purpose in (None, file.purpose)
    ]
    if order == "asc":
        rows.reverse()
    page, has_more = page_of(rows, [row.id for row in rows], after, limit)
    return wire.FileList(
        data=page,
        has_more=has_more,
        first_id=page[0].id if page else None,
        last_id=page[-1].id if page else None,
    )


def page_of(
    rows: Sequence[Row], ids: Sequence[str], after: str | None, limit: int
) -> tuple[list[Row], bool]:
    """Return the rows of a page, and whether more follow. `after`: id of the last row
    of the previous page; None: the first page.

    Raises: RequestInvalid for an id that is not there.
    """
    begin = 0
    if after is not None:
        if after not in ids:
            raise RequestInvalid(f"after: there is no {after[:60]!r}")
        begin = ids.index(after) + 1
    return list(rows[begin : begin + limit]), begin + limit < len(rows)


async def visible_file(house: House, caller: Caller, id: str) -> StoredFile:
    """Return a file that the caller may see. Raises: NotFound."""
    file = await house.control.store.file(FileId(id))
    if file is None or not caller.may(owner=file.owner):
        raise NotFound("file", id[:100])
    return file


@router.get("/v1/files/{file}")
async def retrieve_file(file: str, house: Within, caller: Asker) -> wire.FileObject:
    return wire.FileObject.of(await visible_file(house, caller, file))


@router.get("/v1/files/{file}/content")
async def file_content(file: str, house: Within, caller: Asker) -> FileResponse:
    """Return what the file contains."""
    stored = await visible_file(house, caller, file)
    return content_of(house, stored)


def content_of(house: House, file: StoredFile) -> FileResponse:
    """Return an answer with what the file contains. Raises: NotFound."""
    path = house.files.path(file.id)
    if not path.is_file():
        raise NotFound("file", file.id)
    return FileResponse(path, media_type="application/jsonl", filename=file.name)


@router.delete("/v1/files/{file}")
async def delete_file(file: str, house: Within, caller: Asker) -> wire.FileDeleted:
    """Remove a file, unless a batch that is not over reads it."""
    stored = await visible_file(house, caller, file)
    for batch in await house.batches.open():
        if batch.input_file == stored.id:
            raise Conflict(
                f"the batch {batch.id} reads this file",
                hint="wait for its end, or cancel it",
            )
    entry = caller.entry(house.control.clock.wall(), on=stored.id)
    await house.control.store.drop_file(stored.id, entry=entry)
    house.files.remove(stored.id)
    return wire.FileDeleted(id=stored.id)
