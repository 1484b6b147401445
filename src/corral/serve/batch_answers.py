"""Answers of a batch on disk: each attempt of the job appends to a file of its own, and
the first answer to a line counts.

An attempt that is believed to be lost may still write. It then writes into its own file,
which is read after those of earlier attempts and before those of later ones, so each
line has one answer in the results.
"""

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

OUTPUT: Final = "output.jsonl"
ERRORS: Final = "errors.jsonl"
EXPIRED: Final = "batch_expired"
_RESULTS: Final = "results"
_PATTERN: Final = "answers-*.jsonl"

Record = dict[str, Any]


@dataclass(slots=True)
class BatchCounts:
    """Numbers of lines and tokens.

    Attributes:
        done: Lines with a valid answer.
        failed: Lines that failed for good, without those that expired.
    """

    done: int = 0
    failed: int = 0
    expired: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def finished(self) -> int:
        """Number of lines that need no further work."""
        return self.done + self.failed + self.expired

    def add(self, record: Record) -> None:
        """Count the record of one line."""
        if not is_answered(record):
            is_expired = (record.get("error") or {}).get("code") == EXPIRED
            self.expired += is_expired
            self.failed += not is_expired
            return
        self.done += 1
        body = record["response"]["body"]
        usage = _mapping(body.get("usage") if isinstance(body, dict) else None)
        details = _mapping(
            usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
        )
        self.prompt_tokens += _count(usage, "prompt_tokens", "input_tokens")
        self.completion_tokens += _count(usage, "completion_tokens", "output_tokens")
        self.cached_tokens += _count(details, "cached_tokens")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(usage: Mapping[str, Any], *names: str) -> int:
    counts = (usage.get(name) for name in names)
    return next((count for count in counts if isinstance(count, int)), 0)


def is_answered(record: Record) -> bool:
    """Return whether the record is an answer of the service, and not an error."""
    response = record.get("response")
    return isinstance(response, dict) and 200 <= response.get("status_code", 0) < 300


def answer_record(custom_id: str, status: int, request_id: str, body: object) -> Record:
    """Return the record of a line that got an HTTP answer."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    return _record(custom_id, response, None)


def error_record(custom_id: str, code: str, message: str) -> Record:
    """Return the record of a line that got no HTTP answer."""
    return _record(custom_id, None, {"code": code, "message": message})


def _record(
    custom_id: str, response: Mapping[str, Any] | None, error: Mapping[str, str] | None
) -> Record:
    return {
        "id": f"batch_req_{secrets.token_hex(12)}",
        "custom_id": custom_id,
        "response": response,
        "error": error,
    }


class AnswerLog:
    """File to which one attempt appends its records. An attempt that goes on with the
    work of another one makes a new file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path, self._file = _new_file(folder)
        _sync_folder(folder)
        self._size_bytes = 0

    def append(self, records: Iterable[Record]) -> None:
        """Write records. They survive every failure once this returns. What is left of
        an earlier call that failed is overwritten. Raises: OSError."""
        texts = [json.dumps(record) + "\n" for record in records]
        data = memoryview("".join(texts).encode())
        written = 0
        while written < len(data):
            offset = self._size_bytes + written
            written += os.pwrite(self._file, data[written:], offset)
        os.fsync(self._file)
        self._size_bytes += written

    def close(self) -> None:
        os.close(self._file)


def _new_file(folder: Path) -> tuple[Path, int]:
    files = answer_files(folder)
    number = int(files[-1].stem.rpartition("-")[2]) + 1 if files else 1
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        path = folder / f"answers-{number:06d}.jsonl"
        try:
            return path, os.open(path, flags, 0o600)
        except FileExistsError:  # of an attempt that started at the same time
            number += 1


def answer_files(folder: Path) -> list[Path]:
    """Return the files of all attempts, the oldest first."""
    return sorted(folder.glob(_PATTERN))


@dataclass(slots=True)
class AnswerIndex:
    """Where the record of each line is: (file, offset, bytes) by custom_id."""

    places: dict[str, tuple[Path, int, int]] = field(default_factory=dict)
    counts: BatchCounts = field(default_factory=BatchCounts)


def read_answers(folder: Path) -> AnswerIndex:
    """Return the records of all attempts. If several have one of the same line, the one
    in the oldest file counts. Raises: OSError."""
    index = AnswerIndex()
    for path in answer_files(folder):
        for offset, text, record in _whole_records(path):
            custom_id = record["custom_id"]
            if custom_id not in index.places:
                index.places[custom_id] = path, offset, len(text)
                index.counts.add(record)
    return index


def _whole_records(path: Path) -> Iterator[tuple[int, bytes, Record]]:
    """Yield the (offset, text, record) of each record of a file. A record that was cut
    by a failure ends the file."""
    offset = 0
    with path.open("rb") as file:
        for text in file:
            if not text.endswith(b"\n"):
                return
            try:
                record = json.loads(text)
            except ValueError:
                return
            yield offset, text, record
            offset += len(text)


def write_results(folder: Path, into: Path, custom_ids: Sequence[str]) -> BatchCounts:
    """Write the records of a batch into two files, output and errors, in this order of
    its lines. Each file appears at once, and the output appears last.

    Args:
        folder: Folder with the files of the attempts.

    Raises: OSError.
    """
    index = read_answers(folder)
    counts = BatchCounts()
    suffix = f".{os.getpid()}.{secrets.token_hex(4)}"
    output, errors = into / f".{OUTPUT}{suffix}", into / f".{ERRORS}{suffix}"
    with output.open("wb") as output_file, errors.open("wb") as errors_file:
        for text in _texts_of(index, custom_ids):
            record = json.loads(text)
            counts.add(record)
            (output_file if is_answered(record) else errors_file).write(text)
        _sync(output_file)
        _sync(errors_file)
    errors.replace(into / ERRORS)
    output.replace(into / OUTPUT)
    _sync_folder(into)
    return counts


def _texts_of(index: AnswerIndex, custom_ids: Sequence[str]) -> Iterator[bytes]:
    files: dict[Path, IO[bytes]] = {}
    try:
        for custom_id in custom_ids:
            place = index.places.get(custom_id)
            if place is None:
                continue
            path, offset, size_bytes = place
            if path not in files:
                files[path] = path.open("rb")
            files[path].seek(offset)
            yield files[path].read(size_bytes)
    finally:
        for file in files.values():
            file.close()


def results_of(folder: Path) -> Path | None:
    """Return the folder with all results of the batch; None before its end."""
    results = folder / _RESULTS
    return results if results.is_dir() else None


def publish_results(folder: Path, custom_ids: Sequence[str]) -> Path:
    """Write all results, and return their folder. If another attempt has published
    results meanwhile, those stay. Raises: OSError."""
    staged = folder / f".{_RESULTS}.{secrets.token_hex(4)}"
    staged.mkdir()
    try:
        write_results(folder, staged, custom_ids)
        staged.rename(folder / _RESULTS)
    except OSError as error:
        shutil.rmtree(staged, ignore_errors=True)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    _sync_folder(folder)
    return folder / _RESULTS


def copy_results(results: Path, into: Path) -> BatchCounts:
    """Copy the results of a batch into another folder. Return their counts. Raises:
    OSError."""
    counts = BatchCounts()
    for name in (ERRORS, OUTPUT):
        staged = into / f".{name}.{os.getpid()}"
        shutil.copyfile(results / name, staged)
        staged.replace(into / name)
        with (into / name).open("rb") as file:
            for text in file:
                counts.add(json.loads(text))
    return counts


def remove_answer_files(folder: Path) -> None:
    """Remove the files of the attempts, whose records the results contain."""
    for path in answer_files(folder):
        with suppress(FileNotFoundError):  # another attempt removes them too
            path.unlink()


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the names of new files survive a failure of the machine."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
