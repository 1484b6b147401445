"""Calls about files and batches, and the methods of `Client` for them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from corral.client.api_calls import ApiCall, quoted, read_as
from corral.client.head_proof import was_refused
from corral.client.head_target import Where, error_of, no_answer
from corral.client.request_rules import headers, naps
from corral.domain.errors import WrongHead

if TYPE_CHECKING:
    import httpx2

    from corral.client.head_target import HeadTarget
    from corral.wire import openai_batches as shapes

T = TypeVar("T")
PIECE_BYTES: Final = 256 * 1024


def batch_call(id: str) -> "ApiCall[shapes.BatchObject]":
    return ApiCall(
        method="GET",
        path=f"/v1/batches/{quoted('batch', id, 'corral batch ls')}",
        read=read_as("openai_batches.BatchObject"),
    )


def create_batch_call(
    input_file: str, within: str, extras: dict[str, Any]
) -> "ApiCall[shapes.BatchObject]":
    return ApiCall(
        method="POST",
        path="/v1/batches",
        json={
            "input_file_id": input_file,
            "endpoint": "",
            "completion_window": within,
            "corral": extras,
        },
        read=read_as("openai_batches.BatchObject"),
    )


class SyncBatches:
    """Methods of `Client` for files and batches."""

    _where: Where

    def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    def _client(self, target: "HeadTarget") -> "httpx2.Client":
        raise NotImplementedError

    def upload_file(self, path: Path) -> "shapes.FileObject":
        """Upload the requests of a batch, piece by piece. Raises: OSError if the file
        cannot be read."""
        import httpx2

        from corral.wire.openai_batches import FileObject

        query = {"purpose": "batch", "filename": path.name[:200]}
        for nap in naps(self._where.heads):
            target = self._where.target()
            try:
                answer = self._client(target).post(
                    f"{target.url}/v1/files",
                    params=query,
                    content=_pieces_of(path),
                    headers={
                        **headers(target),
                        "Content-Type": "application/jsonl",
                        "Content-Length": str(path.stat().st_size),
                    },
                )
                break
            except (httpx2.TransportError, WrongHead) as error:
                self._where.pass_over()
                if nap is None or not was_refused(error):
                    raise no_answer(target, error) from None
        if answer.status_code >= 400:
            raise error_of(answer.status_code, answer.content)
        return FileObject.model_validate_json(answer.content)

    def create_batch(
        self, input_file: str, *, within: str, **extras: Any
    ) -> "shapes.BatchObject":
        """Create a batch of an uploaded file. `extras`: the fields under `corral`."""
        return self._call(create_batch_call(input_file, within, extras))

    def batch(self, id: str) -> "shapes.BatchObject":
        """Return the batch with this id."""
        return self._call(batch_call(id))


def _pieces_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
