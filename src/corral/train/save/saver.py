"""Saving in parallel with training. The state is copied at the step boundary, a thread
writes it, and the save is reported when it is durable.

Order of one save: every rank writes and fsyncs its files; then rank 0 writes and fsyncs
the index and the manifest, fsyncs the directory, renames it and fsyncs its parent. No
reader uses the directory before the rename; after the rename all of its content is
durable.
"""

import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from corral.domain.errors import Trouble
from corral.domain.keep_rule import KeepRule, Metrics, SaveKey
from corral.train.process_group import ProcessGroup
from corral.train.save.checkpoint_dir import Shelf, sync_directory
from corral.train.save.manifest import MANIFEST, Manifest, digest, encode
from corral.train.save.storage import (
    Later,
    ShardPlan,
    Staged,
    Staging,
    Written,
    plan_part,
    shape_of,
    write_index,
    write_part,
    write_whole,
)

_END: Final = None  # in the queue: no more work


class SaveFailed(Trouble):
    """The error for a save that was not completed. Training and older saves are
    unaffected."""

    code = "save_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A complete and durable save, with what rank 0 reports about it."""

    step: int
    attempt: int
    path: Path
    manifest_sha256: str
    size_bytes: int
    seconds: float
    stall_seconds: float
    metrics: Metrics = ()
    saved_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    step: int
    staged: Sequence[Staged]
    later: Sequence[Later]
    trouble: str
    began: float
    stall_seconds: float
    metrics: Metrics


class Saver:
    """Writer of this rank's part of every save. The training thread calls all methods
    except `forget`.

    The training thread uses the group `talk` and the writing thread the group `quiet`,
    so that neither receives messages of the other. `done` is called for every complete
    save, on the writing thread of rank 0. `failed` is called on every rank for a save
    that was not completed.
    """

    def __init__(
        self,
        shelf: Shelf,
        *,
        keep: KeepRule,
        talk: ProcessGroup,
        quiet: ProcessGroup,
        done: Callable[[Saved], None],
        failed: Callable[[int, str], None],
    ) -> None:
        self.shelf = shelf
        self.last_step: int | None = None  # of the newest save that is complete
        self.last_seconds: float | None = None  # the newest save took; None: it failed
        self._keep = keep
        self._talk = talk
        self._quiet = quiet
        self._done = done
        self._failed = failed
        self._warned = False  # of a metric that is not logged
        self._part: ShardPlan | None = None
        self._staging = Staging()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._copied = threading.Event()
        self._copied.set()
        # an optimizer, for its state to be copied
        self._waits_since: float | None = None
        self._waited = 0.0
        # A daemon: a process that fails must not wait for ranks that are gone.
        self._thread = threading.Thread(
            target=self._run_tasks, name="corral-saver", daemon=True
        )
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Return whether a save is being written now."""
        return not self._idle.is_set()

    def guard(self, optimizer: torch.optim.Optimizer) -> None:
        """Ensure that no step of the optimizer changes its state while the state is
        being copied."""
        optimizer.register_step_pre_hook(self._before_optimizer_step)

    def _before_optimizer_step(self, *_: Any) -> None:
        if not self._copied.is_set():
            self._waits_since = time.monotonic()
            self._copied.wait()

    def prepare(self, state: dict[str, Any]) -> None:
        """Plan the saves, and allocate the staging buffers in parallel with training,
        before the first save is due.

        All ranks must call this together.
        """
        self._plan(state)
        items = self._part.items if self._part else ()
        self._idle.clear()
        self._tasks.put(lambda: self._allocate_staging(state, items))

    def save(
        self,
        step: int,
        capture: Callable[[], dict[str, Any]],
        metrics: Metrics = (),
    ) -> float:
        """Copy the state, and write it in parallel with training. Return the seconds by
        which this delayed training. All ranks must call this together. If an earlier
        save is still being written, wait for it.

        Args:
            capture: returns the state.
            metrics: newest values that the script has logged. Only those of rank 0 are
                recorded.
        """
        self.wait()
        began = time.monotonic()
        self.last_seconds = None
        self._warn_unlogged(metrics)
        state = capture()
        trouble = ""
        staged: Sequence[Staged] = ()
        later: Sequence[Later] = ()
        changed = self._part is None or shape_of(state) != self._part.shape
        if self._talk.largest([changed]).wait()[0]:
            self._plan(state)
        try:
            staged, later = self._staging.take(
                state, self._part.items if self._part else ()
            )
        except (RuntimeError, MemoryError) as error:
            trouble = f"the state could not be copied: {error}"
        stall = time.monotonic() - began
        task = _Task(
            step=step,
            staged=staged,
            later=later,
            trouble=trouble,
            began=began,
            stall_seconds=stall,
            metrics=metrics,
        )
        self._waits_since, self._waited = None, 0.0
        self._copied.clear()
        self._idle.clear()
        self._tasks.put(lambda: self._run_save(task))
        return stall

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until no save is being written, for at most this many seconds. Return
        whether that is so."""
        return self._idle.wait(seconds)

    def forget(
        self, committed: Sequence[SaveKey], pinned: Sequence[SaveKey] = ()
    ) -> None:
        """Remove the saves that the keep rule does not keep. `committed`: (attempt,
        step) of each save that the head has recorded; `pinned`: of those that stay."""
        self._tasks.put(lambda: self._prune_saves(committed, pinned))

    def close(self) -> None:
        """Finish the save that is being written, and end the thread."""
        self._tasks.put(_END)
        self._thread.join()

    def _warn_unlogged(self, metrics: Metrics) -> None:
        """Write a warning, once, if the best saves are to stay by a metric that has not
        been logged."""
        best = self._keep.best
        is_logged = best is None or best.metric in dict(metrics)
        if best is not None and self._talk.leads and not (is_logged or self._warned):
            self._warned = True
            say(
                f"the best saves are to stay by {best.metric!r}, but this step has no finite "
                "value of it: this save is not among them; log it: "
                f"run.log({best.metric}=...)"
            )

    def _plan(self, state: dict[str, Any]) -> None:
        self._part = None
        self._part = plan_part(state, self._talk)

    def _run_tasks(self) -> None:
        while (task := self._tasks.get()) is not _END:
            task()

    def _allocate_staging(self, state: dict[str, Any], items: Sequence[Any]) -> None:
        try:
            for later in self._staging.take(state, items)[1]:
                later.copy()
        except (RuntimeError, MemoryError) as error:
            say(f"staging buffers for saves cannot be allocated yet: {error}")
        finally:
            self._idle.set()

    def _prune_saves(
        self, committed: Sequence[SaveKey], pinned: Sequence[SaveKey]
    ) -> None:
        try:
            self.shelf.prune(set(committed), rule=self._keep, pinned=set(pinned))
        except OSError as error:
            say(f"old saves cannot be removed: {error}")

    def _run_save(self, task: _Task) -> None:
        try:
            trouble = self._copy_remaining(task)
            saved = self._together(task, trouble)
        except SaveFailed as error:
            self._failed(task.step, error.message)
        except Exception as error:
            # the gang is breaking up: training itself will say more
            self._failed(task.step, f"the ranks lost their connection: {error!r}")
        else:
            self.last_step = task.step
            self.last_seconds = time.monotonic() - task.began
            if saved is not None:
                self._done(saved)
        finally:
            self._idle.set()

    def _copy_remaining(self, task: _Task) -> str:
        """Copy the tensors that are still to be copied; then let the optimizers
        continue. Return an error text, or ""."""
        try:
            troubles = [later.copy() for later in task.later]
        finally:
            # counted here: the save may end before it goes on
            if self._waits_since is not None:
                self._waited = time.monotonic() - self._waits_since
            self._copied.set()
        return task.trouble or next(filter(None, troubles), "")

    def _together(self, task: _Task, own_trouble: str) -> Saved | None:
        """Write one save on all ranks together. Return it on rank 0, and None on the
        other ranks.

        Raises: SaveFailed on every rank, or on none.
        """
        began = self._begin_partial_save(task.step) if self._quiet.leads else ""
        trouble = self._quiet.share(began)
        written: Written | str = trouble or own_trouble
        if not written:
            written = self._write_rank_part(task)
        results = self._quiet.gather(written)
        outcome: Saved | str | None = None
        if self._quiet.leads:
            troubles = [result for result in results if isinstance(result, str)]
            outcome = troubles[0] if troubles else self._commit_save(task, results)
            if isinstance(outcome, str):
                self.shelf.abandon(task.step)
        failure = self._quiet.share(outcome if isinstance(outcome, str) else "")
        if failure:
            raise SaveFailed(failure)
        return outcome if isinstance(outcome, Saved) else None

    def _begin_partial_save(self, step: int) -> str:
        try:
            self.shelf.begin(step)
        except Exception as error:  # whatever it is: the other ranks wait to hear of it
            return _describe_error(error)
        return ""

    def _write_rank_part(self, task: _Task) -> Written | str:
        directory = self.shelf.partial(task.step)
        try:
            written = write_part(directory, self._quiet.rank, task.staged)
            sync_directory(directory)
        except Exception as error:  # whatever it is: the other ranks wait to hear of it
            return _describe_error(error)
        return written

    def _commit_save(self, task: _Task, parts: Sequence[Written]) -> Saved | str:
        """Combine the files that all ranks have written into one complete save, and
        return it. Only rank 0 calls this. If it fails, return a text with the reason.
        """
        directory = self.shelf.partial(task.step)
        saved_at = time.clock_gettime(time.CLOCK_REALTIME)
        assert self._part is not None
        assert self._part.metadata is not None
        try:
            index = write_index(directory, self._part.metadata, parts)
            manifest = Manifest(
                job=self.shelf.job,
                attempt=self.shelf.attempt,
                step=task.step,
                world_size=self._quiet.world_size,
                torch=torch.__version__,
                files=(
                    index,
                    *(entry for rank_output in parts for entry in rank_output.files),
                ),
                metrics=task.metrics,
                saved_at=saved_at,
            )
            data = encode(manifest)
            write_whole(directory / MANIFEST, data)
            sync_directory(directory)
            path = self.shelf.publish(task.step)
        except Exception as error:  # whatever it is: the other ranks wait to hear of it
            return _describe_error(error)
        return Saved(
            step=task.step,
            attempt=self.shelf.attempt,
            path=path,
            manifest_sha256=digest(data),
            size_bytes=manifest.size_bytes,
            seconds=time.monotonic() - task.began,
            stall_seconds=task.stall_seconds + self._waited,
            metrics=task.metrics,
            saved_at=saved_at,
        )


def say(text: str) -> None:
    """Write a line to standard error (the job's log)."""
    print(f"corral: {text}", file=sys.stderr, flush=True)


def _describe_error(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error) if isinstance(error, Trouble) else repr(error)
    file_text = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{file_text}"
