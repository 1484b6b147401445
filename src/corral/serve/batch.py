"""Program of a batch: it sends the requests of a file to a service, and writes the answers
to a file: `python -m corral.serve.batch FILE --service NAME`.

Each answer is on disk before it counts, in a folder that the next attempt of the job
finds. It uses the standard library only.
"""

import argparse
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.serve.batch_answers import (
    EXPIRED,
    AnswerLog,
    BatchCounts,
    Record,
    copy_results,
    error_record,
    publish_results,
    read_answers,
    remove_answer_files,
    results_of,
    write_results,
)
from corral.serve.batch_client import BatchConnection
from corral.serve.batch_file import (
    BatchFileInvalid,
    BatchLine,
    BatchRequests,
    in_prefix_order,
    read_batch,
)
from corral.serve.batch_pace import BatchConcurrency, LineRate, is_too_slow
from corral.serve.batch_progress import (
    BatchProgress,
    BatchState,
    ShimReporter,
    expected_end,
    shim_message,
    write_progress,
)
from corral.serve.batch_schedule import BatchSchedule

# as clients of OpenAI call it; it ends in /v1
GATEWAY_VARIABLE: Final = "OPENAI_BASE_URL"
TURN_SECONDS: Final = 0.05  # between two looks at the end and at the deadline
REPORT_SECONDS: Final = 1.0
LEARNING_SECONDS: Final = 10.0  # before the rate says anything about the deadline
LINE_SECONDS: Final = 60.0  # between two lines of the log
STOP_SECONDS: Final = 10.0  # for the requests under way when the job is to stop
DISK_SECONDS: Final = 5.0  # before another try to write answers
MOST_COMMITTED: Final = 1000  # records with one fsync
STOPPED_CODE: Final = 75
FAILED_CODE: Final = 1
USAGE_CODE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """Settings of one attempt.

    Args:
        state_folder: Folder for answers, which all attempts of the job see.
        work_folder: Work folder of the attempt, for progress and results.
        deadline: Seconds since 1970; None: no deadline.
        concurrency: Most requests at once; None: chosen by the program.
    """

    file: Path
    service: str
    model: str
    gateway_url: str
    key: str
    state_folder: Path
    work_folder: Path
    deadline: float | None = None
    concurrency: int | None = None
    shim_path: str = ""


def wall() -> float:
    """Return the seconds since 1970."""
    return time.clock_gettime(time.CLOCK_REALTIME)


class BatchWriter:
    """Thread that makes answers durable, as many at once as have arrived meanwhile.

    Attributes:
        counts: Lines whose records are on disk.
    """

    def __init__(self, folder: Path, counts: BatchCounts, pause: BatchSchedule) -> None:
        self.counts = counts
        self._log = AnswerLog(folder)
        self._pause = pause
        self._records: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        self._records.put(record)

    def close(self) -> None:
        """Wait until everything is on disk."""
        self._records.put(None)
        self._thread.join()
        self._log.close()

    def _live(self) -> None:
        is_open = True
        while is_open:
            records, is_open = self._next_records()
            while records and not self._append(records):
                time.sleep(DISK_SECONDS)
            for record in records:
                self.counts.add(record)

    def _next_records(self) -> tuple[list[Record], bool]:
        """Return the records that have arrived, at least one, and whether more come."""
        records: list[Record] = []
        with suppress(queue.Empty):
            while len(records) < MOST_COMMITTED:
                record = self._records.get(block=not records)
                if record is None:
                    return records, False
                records.append(record)
        return records, True

    def _append(self, records: Sequence[Record]) -> bool:
        try:
            self._log.append(records)
        except OSError as error:
            self._pause.pause_for(DISK_SECONDS)
            print(f"answers cannot be written: {error}", file=sys.stderr, flush=True)
            return False
        return True


class BatchRun:
    """One attempt of a batch.

    Raises: BatchFileInvalid, OSError, ValueError.
    """

    def __init__(self, options: BatchOptions) -> None:
        self.options = options
        self.lines = read_batch(options.file)
        # a plain value, because a signal sets it: an event has a lock
        self.is_stopping = False
        answers = read_answers(options.state_folder)
        unfinished = [
            line for line in self.lines if line.custom_id not in answers.places
        ]
        self._first_step = len(self.lines) - len(unfinished)
        self._first_tokens = answers.counts.completion_tokens
        self._schedule = BatchSchedule(BatchConcurrency(options.concurrency))
        self._schedule.add(in_prefix_order(unfinished))
        self._requests = BatchRequests(options.file, options.model)
        self._writer = BatchWriter(options.state_folder, answers.counts, self._schedule)
        self._shim = ShimReporter(options.shim_path)
        self._began_at = time.monotonic()
        self._rate = LineRate(self._began_at, self._first_step)
        self._threads: list[threading.Thread] = []
        self._printed_at = self._began_at
        self._reported_at = -REPORT_SECONDS
        BatchConnection(options.gateway_url, options.key)  # refuses a wrong address

    def run(self) -> BatchState:
        """Send all lines. Return FINISHED once every line has a record, and STOPPED if
        the job has to stop before."""
        self._print_start()
        while not self._is_over():
            self._start_threads()
            if time.monotonic() >= self._reported_at + REPORT_SECONDS:
                self.report(BatchState.RUNNING)
            time.sleep(TURN_SECONDS)
            if self.is_stopping:
                return self._stop()
            if self.options.deadline is not None and wall() >= self.options.deadline:
                self._expire()
                break
        self._writer.close()
        return BatchState.FINISHED

    def _is_over(self) -> bool:
        return self._writer.counts.finished >= len(self.lines)

    def _start_threads(self) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for _ in range(self._schedule.wanted_threads - len(self._threads)):
            thread = threading.Thread(target=self._send_lines, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _send_lines(self) -> None:
        """Send lines, one after the other, until there are none."""
        connection = BatchConnection(self.options.gateway_url, self.options.key)
        while (line := self._schedule.take()) is not None:
            self._send(connection, line)
        connection.close()

    def _send(self, connection: BatchConnection, line: BatchLine) -> None:
        sent_at = time.monotonic()
        answer = connection.send(self._requests.request_of(line))
        record = self._schedule.settle(line, answer, sent_at)
        if record is not None:
            self._writer.put(record)

    def _stop(self) -> BatchState:
        """Wait a short time for the requests under way, and keep their answers."""
        self._schedule.close()
        give_up_at = time.monotonic() + STOP_SECONDS
        while self._schedule.under_way and time.monotonic() < give_up_at:
            time.sleep(0.02)
        self._schedule.expire()
        self._writer.close()
        return BatchState.FINISHED if self._is_over() else BatchState.STOPPED

    def _expire(self) -> None:
        """End all lines that have no answer."""
        for line in self._schedule.expire():
            self._writer.put(
                error_record(
                    line.custom_id,
                    EXPIRED,
                    "the batch reached its deadline before this request was answered",
                )
            )

    # -- results ---------------------------------------------------------------------------------

    def write_results(self, state: BatchState) -> BatchCounts:
        """Write the results into the work folder; if all lines have one, also into the
        folder of the answers. Raises: OSError."""
        folder, into = self.options.state_folder, self.options.work_folder
        custom_ids = [line.custom_id for line in self.lines]
        if state is not BatchState.FINISHED:
            return write_results(folder, into, custom_ids)
        counts = copy_results(publish_results(folder, custom_ids), into)
        remove_answer_files(folder)
        return counts

    # -- progress --------------------------------------------------------------------------------

    def report(self, state: BatchState) -> None:
        """Write the progress, and send it to the shim."""
        now = time.monotonic()
        progress = self._progress(state, now)
        self._reported_at = now
        with suppress(OSError):  # a full disk, which the writer reports
            write_progress(self.options.work_folder, progress)
        self._shim.send(
            shim_message(
                progress, first_step=self._first_step, seconds=now - self._began_at
            )
        )
        if now - self._printed_at >= LINE_SECONDS or state is not BatchState.RUNNING:
            self._printed_at = now
            print(progress_line(progress), flush=True)

    def _progress(self, state: BatchState, now: float) -> BatchProgress:
        counts = self._writer.counts
        self._rate.add(now, counts.finished)
        rate = self._rate.lines_per_second
        unfinished = len(self.lines) - counts.finished
        seconds = now - self._began_at
        deadline = self.options.deadline
        is_behind = (
            deadline is not None
            and seconds >= LEARNING_SECONDS
            and is_too_slow(unfinished, rate, deadline - wall())
        )
        self._schedule.set_behind(is_behind)
        tokens = counts.completion_tokens - self._first_tokens
        trouble = self._schedule.trouble
        is_waiting = state is BatchState.RUNNING and bool(trouble)
        return BatchProgress(
            state=BatchState.WAITING if is_waiting else state,
            service=self.options.service,
            lines=len(self.lines),
            done=counts.done,
            failed=counts.failed,
            expired=counts.expired,
            left=unfinished,
            lines_per_second=rate,
            prompt_tokens=counts.prompt_tokens,
            completion_tokens=counts.completion_tokens,
            cached_tokens=counts.cached_tokens,
            tokens_per_second=tokens / seconds if seconds else 0.0,
            concurrency=self._schedule.limit.value,
            is_behind=is_behind,
            deadline=deadline,
            expected_end=expected_end(unfinished, rate, wall(), deadline),
            at=wall(),
            trouble=trouble if is_waiting else "",
        )

    def _print_start(self) -> None:
        answered = f"; {self._first_step:,} have answers" if self._first_step else ""
        print(
            f"{len(self.lines):,} lines for {self.options.service}{answered}; answers are "
            f"kept in {self.options.state_folder}",
            flush=True,
        )


def finished_progress(options: BatchOptions, counts: BatchCounts) -> BatchProgress:
    """Return the progress of a batch that an earlier attempt has finished."""
    return BatchProgress(
        state=BatchState.FINISHED,
        service=options.service,
        lines=counts.finished,
        done=counts.done,
        failed=counts.failed,
        expired=counts.expired,
        left=0,
        lines_per_second=0.0,
        prompt_tokens=counts.prompt_tokens,
        completion_tokens=counts.completion_tokens,
        cached_tokens=counts.cached_tokens,
        tokens_per_second=0.0,
        concurrency=0,
        is_behind=False,
        deadline=options.deadline,
        expected_end=wall(),
        at=wall(),
    )


def progress_line(progress: BatchProgress) -> str:
    """Return the progress on one line."""
    expired = f", {progress.expired:,} expired" if progress.expired else ""
    trouble = f"; {progress.trouble}" if progress.trouble else ""
    return (
        f"{progress.done:,} of {progress.lines:,} lines done, {progress.failed:,} failed"
        f"{expired}; {progress.lines_per_second:.3g} lines/s, "
        f"{progress.concurrency} at once{trouble}"
    )


def state_folder_of(batch_id: str, environment: dict[str, str]) -> Path:
    """Return the folder for the answers: below the checkpoint path of the job, else
    below the cluster's shared path, else in the work folder, which the next attempt does
    not see."""
    checkpoints = environment.get("CORRAL_CHECKPOINT_PATH")
    shared = environment.get("CORRAL_SHARED")
    if checkpoints:
        return Path(checkpoints) / f"batch-{batch_id}"
    if shared:
        return Path(shared) / f"batch-{batch_id}"
    return Path.cwd() / "batch"


def parsed_options(arguments: list[str] | None = None) -> BatchOptions:
    """Return the options of the command line and the environment."""
    parser = argparse.ArgumentParser(prog="python -m corral.serve.batch")
    parser.add_argument("file", type=Path, help="requests, one a line")
    parser.add_argument("--service", required=True, help="name of the service")
    parser.add_argument("--model", help="model of lines that name none")
    parser.add_argument("--id", default="batch", help="name of the folder of answers")
    parser.add_argument("--deadline", type=float, help="seconds since 1970")
    parser.add_argument("--concurrency", type=int, help="most requests at once")
    parser.add_argument("--lines", type=int, help="number of requests, for listings")
    options = parser.parse_args(arguments)
    environment = dict(os.environ)
    gateway_url = environment.get(GATEWAY_VARIABLE, "")
    return BatchOptions(
        file=options.file,
        service=options.service,
        model=options.model or options.service,
        gateway_url=gateway_url.rstrip("/").removesuffix("/v1"),
        key=environment.get("CORRAL_TOKEN", ""),
        state_folder=state_folder_of(options.id, environment),
        work_folder=Path.cwd(),
        deadline=options.deadline,
        concurrency=options.concurrency,
        shim_path=environment.get("CORRAL_SOCKET", ""),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the batch of the command line. Return the exit code."""
    options = parsed_options(arguments)
    results = results_of(options.state_folder)
    if results is not None:  # an attempt was lost after its last line
        counts = copy_results(results, options.work_folder)
        write_progress(options.work_folder, finished_progress(options, counts))
        print("all lines have answers already", flush=True)
        return 0
    try:
        run = BatchRun(options)
    except (BatchFileInvalid, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE_CODE
    except OSError as error:
        print(f"error: the answers cannot be kept: {error}", file=sys.stderr)
        return FAILED_CODE

    def stop(number: int, frame: object) -> None:
        run.is_stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    state = run.run()
    counts = run.write_results(state)
    run.report(state)
    if state is BatchState.STOPPED:
        return STOPPED_CODE
    print(
        f"{counts.done:,} answers in output.jsonl, "
        f"{counts.failed + counts.expired:,} errors in errors.jsonl",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # requests under way are of no use any more
