"""Program of a batch: it sends the requests of a file to a service, and writes the answers
to a file: `python -m corral.serve.batch FILE --service NAME`.

Each answer is on disk before it counts, in a folder that the next attempt of the job
finds. It uses the standard library only.
"""

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
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
from corral.serve.batch_delivery import (
    CANCELLING,
    BatchDelivery,
    HeadRefusedBatch,
    ProgressSender,
)
from corral.serve.batch_file import (
    BatchFileInvalid,
    BatchLine,
    BatchRequests,
    in_prefix_order,
    read_batch,
)
from corral.serve.batch_options import BatchOptions, parsed_options
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

TURN_SECONDS: Final = 0.05  # between two looks at the end and at the deadline
REPORT_SECONDS: Final = 1.0
LEARNING_SECONDS: Final = 10.0  # before the rate says anything about the deadline
LINE_SECONDS: Final = 60.0  # between two lines of the log
STOP_SECONDS: Final = 10.0  # for the requests under way when the job is to stop
DISK_SECONDS: Final = 5.0  # before another try to write answers
BYTES_PER_TOKEN: Final = 4
USUAL_OUTPUT_TOKENS: Final = 256  # of a line, before one is answered
MOST_COMMITTED: Final = 1000  # records with one fsync
STOPPED_CODE: Final = 75
FAILED_CODE: Final = 1
USAGE_CODE: Final = 2


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
        self._delivery = options.delivery(lambda: self.is_stopping)
        self._sender = (
            None if self._delivery is None else ProgressSender(self._delivery)
        )
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
            if self.is_stopping or self._is_cancelled:
                return self._stop()
            if self.options.deadline is not None and wall() >= self.options.deadline:
                self._expire()
                break
        self._writer.close()
        return BatchState.FINISHED

    @property
    def _is_cancelled(self) -> bool:
        return self._sender is not None and self._sender.status == CANCELLING

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

    def deliver(self, state: BatchState) -> None:
        """Send the results to the head: all of them, or what a cancelled batch has.

        Raises: HeadRefusedBatch, OSError.
        """
        if self._delivery is None or self._sender is None:
            return
        progress = self._progress(state, time.monotonic())
        self._sender.send_now(progress, self._tokens_left())
        if state is BatchState.FINISHED or self._is_cancelled:
            self._delivery.deliver(self.options.work_folder)

    # -- progress --------------------------------------------------------------------------------

    def report(self, state: BatchState) -> None:
        """Write the progress, and send it to the shim."""
        now = time.monotonic()
        progress = self._progress(state, now)
        self._reported_at = now
        with suppress(OSError):  # a full disk, which the writer reports
            write_progress(self.options.work_folder, progress)
        if self._sender is not None and state is BatchState.RUNNING:
            self._sender.put(progress, self._tokens_left())
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
            unanswered=unfinished,
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

    def _tokens_left(self) -> float:
        """Return about how many tokens the unfinished lines have, in and out: as many
        as the answered ones on average, or by the sizes of all."""
        counts = self._writer.counts
        unfinished = len(self.lines) - counts.finished
        tokens = counts.prompt_tokens + counts.completion_tokens
        if counts.done and tokens:
            return unfinished * tokens / counts.done
        sizes = sum(line.size_bytes for line in self.lines)
        mean = sizes / len(self.lines) / BYTES_PER_TOKEN + USUAL_OUTPUT_TOKENS
        return unfinished * mean

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
        unanswered=0,
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


class _Stop:
    """Wish to stop, which a signal sets."""

    def __init__(self) -> None:
        self.run: BatchRun | None = None
        self.is_set = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.is_set = True
        if self.run is not None:
            self.run.is_stopping = True


def main(arguments: list[str] | None = None) -> int:
    """Run the batch of the command line. Return the exit code."""
    options = parsed_options(arguments)
    stop = _Stop()
    delivery = options.delivery(lambda: stop.is_set)
    try:
        results = results_of(options.state_folder)
        if results is not None:  # an attempt was lost after its last line
            return _deliver_again(options, delivery, results)
        if delivery is not None and not options.file.exists():
            delivery.fetch_input(options.file)
        run = BatchRun(options)
        stop.run, run.is_stopping = run, stop.is_set
        state = run.run()
        counts = run.write_results(state)
        run.report(state)
        run.deliver(state)
    except (BatchFileInvalid, HeadRefusedBatch, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE_CODE
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return STOPPED_CODE if stop.is_set else FAILED_CODE
    if state is BatchState.STOPPED:
        return STOPPED_CODE
    print(
        f"{counts.done:,} answers in output.jsonl, "
        f"{counts.failed + counts.expired:,} errors in errors.jsonl",
        flush=True,
    )
    return 0


def _deliver_again(
    options: BatchOptions, delivery: BatchDelivery | None, results: Path
) -> int:
    """Take over the results of an earlier attempt. Raises: HeadRefusedBatch, OSError."""
    counts = copy_results(results, options.work_folder)
    progress = finished_progress(options, counts)
    write_progress(options.work_folder, progress)
    if delivery is not None:
        ProgressSender(delivery).send_now(progress, 0.0)
        delivery.deliver(options.work_folder)
    print("all lines have answers already", flush=True)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # requests under way are of no use any more
