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

from corral.domain.errors import CorralError, Trouble
from corral.domain.keep_rule import KeepRule, Metrics, SaveKey
from corral.train.process_group import ProcessGroup
from corral.train.save.checkpoint_dir import Shelf
from corral.train.save.checkpoint_store import CheckpointStore, SaveTarget
from corral.train.save.copy_helper import CopyHelper
from corral.train.save.memory_tier import MemoryTier
from corral.train.save.part_writing import hash_part, write_part
from corral.train.save.save_documents import SaveDocuments, describe_save
from corral.train.save.staging import Later, StagedPart, Staging
from corral.train.save.storage import (
    INDEX,
    ShardPlan,
    Written,
    plan_part,
    shape_of,
)
from corral.train.save_path import SavePath

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
    path: SavePath
    manifest_sha256: str
    size_bytes: int
    seconds: float
    stall_seconds: float
    metrics: Metrics = ()
    saved_at: float = 0.0

    @property
    def directory(self) -> Path:
        """Return the directory of a save that is not in an object store."""
        assert isinstance(self.path, Path), f"{self.path} is not a directory"
        return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    step: int
    staged: StagedPart | None
    later: Sequence[Later]
    trouble: str
    began: float
    stall_seconds: float
    metrics: Metrics
    durable: bool


class Saver:
    """Writer of this rank's part of every save. The training thread calls all methods
    except `forget`.

    The training thread uses the group `talk` and the writing thread the group `quiet`,
    so that neither receives messages of the other. `done` is called for every complete
    durable save, on the writing thread of rank 0. `failed` is called on every rank for
    a save that was not completed. `memory`: where saves in the memory of the nodes go;
    None: all saves are durable.
    """

    def __init__(
        self,
        shelf: CheckpointStore,
        *,
        keep: KeepRule,
        talk: ProcessGroup,
        quiet: ProcessGroup,
        done: Callable[[Saved], None],
        failed: Callable[[int, str], None],
        memory: MemoryTier | None = None,
    ) -> None:
        self.shelf = shelf
        self.memory: MemoryTier | None = None  # once it is allocated
        # of the newest durable save that is complete
        self.last_step: int | None = None
        self.last_seconds: float | None = None  # the newest save took; None: it failed
        self._keep = keep
        self._talk = talk
        self._quiet = quiet
        self._done = done
        self._failed = failed
        self._warned = False  # of a metric that is not logged
        self._part: ShardPlan | None = None
        self._offered_memory = memory
        self._staging = Staging(quiet.rank)
        self._helper = CopyHelper()
        self._documents: SaveDocuments | None = None  # of the newest save, on rank 0
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

    @property
    def memory_step(self) -> int | None:
        """Return the step of the newest save in the memory of the nodes; None
        without such a save."""
        return None if self.memory is None else self.memory.step

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
        self._idle.clear()
        self._tasks.put(lambda: self._allocate_staging(state))

    def save(
        self,
        step: int,
        capture: Callable[[], dict[str, Any]],
        metrics: Metrics = (),
        *,
        durable: bool = True,
    ) -> float:
        """Copy the state, and write it in parallel with training. Return the seconds by
        which this delayed training. All ranks must call this together. If an earlier
        save is still being written, wait for it.

        Args:
            capture: returns the state.
            metrics: newest values that the script has logged. Only those of rank 0 are
                recorded.
            durable: whether the save is more than one in the memory of the nodes.
        """
        self.wait()
        began = time.monotonic()
        self.last_seconds = None
        self._warn_unlogged(metrics)
        state = capture()
        trouble = ""
        staged: StagedPart | None = None
        later: Sequence[Later] = ()
        changed = self._part is None or shape_of(state) != self._part.shape
        if self._talk.largest([changed]).wait()[0]:
            self._plan(state)
            if self.memory is not None:
                self._open_memory(state, self._talk)
        staging = self._staging if self.memory is None else self.memory.staging
        try:
            staged, later = staging.take(state, self._items)
        except (RuntimeError, MemoryError, OSError) as error:
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
            durable=durable or self.memory is None,
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

    def free_memory(self, step: int) -> bool:
        """Free the memory of saves on this node, if the save of this step is durable,
        and return whether it is."""
        is_durable = not self.busy and self.last_step == step
        if is_durable and self.memory is not None:
            self.memory.clear()
            self.memory = None  # until the next preparation
        return is_durable

    def close(self) -> None:
        """Finish the save that is being written, and end the thread."""
        self._tasks.put(_END)
        self._thread.join()
        self._helper.close()

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

    @property
    def _items(self) -> Sequence[Any]:
        return self._part.items if self._part else ()

    def _run_tasks(self) -> None:
        while (task := self._tasks.get()) is not _END:
            task()

    def _allocate_staging(self, state: dict[str, Any]) -> None:
        self._helper.start()
        try:
            self._open_memory(state, self._quiet)
            if self.memory is None:
                self._staging.allocate(state, self._items)
        except (RuntimeError, MemoryError, OSError) as error:
            say(f"staging buffers for saves cannot be allocated yet: {error}")
        finally:
            self._idle.set()

    def _open_memory(self, state: dict[str, Any], gang: ProcessGroup) -> None:
        """Allocate the memory for saves on all nodes, or on none."""
        self.memory = None
        tier = self._offered_memory
        if tier is None:
            return
        trouble = tier.allocate(state, self._items, gang)
        if not trouble:
            self.memory = tier
            return
        self._offered_memory = None
        tier.clear()
        if gang.leads:
            say(
                f"no saves are made in the memory of the nodes: {trouble}; durable saves "
                "go on"
            )

    def _prune_saves(
        self, committed: Sequence[SaveKey], pinned: Sequence[SaveKey]
    ) -> None:
        try:
            self.shelf.prune(set(committed), rule=self._keep, pinned=set(pinned))
        except (OSError, CorralError) as error:
            say(f"old saves cannot be removed: {error}")

    def _run_save(self, task: _Task) -> None:
        try:
            trouble = self._copy_remaining(task)
            saved = None
            if task.durable:
                saved = self._together(task, trouble)
            else:
                self._save_in_memory(task, trouble)
        except SaveFailed as error:
            self._failed(task.step, error.message)
        except Exception as error:
            # the gang is breaking up: training itself will say more
            self._failed(task.step, f"the ranks lost their connection: {error!r}")
        else:
            if task.durable:
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
        begun = self._begin_partial_save(task.step) if self._quiet.leads else ""
        target = self._quiet.share(begun)
        written: Written | str = target if isinstance(target, str) else own_trouble
        if not written:
            written = self._write_rank_part(task, target)
        results = self._quiet.gather(written)
        outcome: Saved | str | None = None
        if self._quiet.leads:
            troubles = [result for result in results if isinstance(result, str)]
            outcome = (
                troubles[0] if troubles else self._commit_save(task, target, results)
            )
            if isinstance(outcome, str):
                self.shelf.abandon(
                    task.step, None if isinstance(target, str) else target
                )
        failure = self._quiet.share(outcome if isinstance(outcome, str) else "")
        if failure:
            raise SaveFailed(failure)
        if self.memory is not None:
            self._publish_in_memory(task.step, self.memory)
        return outcome if isinstance(outcome, Saved) else None

    def _publish_in_memory(self, step: int, memory: MemoryTier) -> None:
        """Publish in memory what has just been saved durably."""
        documents = self._quiet.share(self._documents)
        trouble = memory.publish(step, documents.index, documents.manifest, self._quiet)
        if trouble and self._quiet.leads:
            say(f"the save of step {step} is durable, but not in {trouble}")

    def _save_in_memory(self, task: _Task, own_trouble: str) -> None:
        """Make one save in the memory of the nodes on all ranks together.

        Raises: SaveFailed on every rank, or on none.
        """
        memory = self.memory
        assert memory is not None
        written = own_trouble or self._hash_rank_part(task)
        results = self._quiet.gather(written)
        outcome: SaveDocuments | str = ""
        if self._quiet.leads:
            troubles = [result for result in results if isinstance(result, str)]
            outcome = troubles[0] if troubles else self._describe(task, results)
        outcome = self._quiet.share(outcome)
        if isinstance(outcome, str):
            raise SaveFailed(outcome)
        trouble = memory.publish(
            task.step, outcome.index, outcome.manifest, self._quiet
        )
        if trouble:
            raise SaveFailed(trouble)

    def _hash_rank_part(self, task: _Task) -> Written | str:
        assert task.staged is not None
        try:
            return hash_part(task.staged, self._helper)
        except Exception as error:  # whatever it is: the other ranks wait to hear of it
            return _describe_error(error)

    def _describe(self, task: _Task, parts: Sequence[Written]) -> SaveDocuments | str:
        """Return the documents of a save. Only rank 0 calls this. If it fails, return a
        text with the reason."""
        assert self._part is not None
        assert self._part.metadata is not None
        try:
            if isinstance(self.shelf, Shelf):
                self.shelf.check_fence()
            return describe_save(
                parts,
                self._part.metadata,
                job=self.shelf.job,
                attempt=self.shelf.attempt,
                step=task.step,
                metrics=task.metrics,
            )
        except Exception as error:  # whatever it is: the other ranks wait to hear of it
            return _describe_error(error)

    def _begin_partial_save(self, step: int) -> SaveTarget | str:
        try:
            return self.shelf.begin(step)
        except Exception as error:  # whatever it is: the other ranks wait to hear of it
            return _describe_error(error)

    def _write_rank_part(self, task: _Task, target: SaveTarget) -> Written | str:
        assert task.staged is not None
        try:
            written = write_part(target, task.staged, self._helper)
            target.sync()
        except Exception as error:  # whatever it is: the other ranks wait to hear of it
            return _describe_error(error)
        return written

    def _commit_save(
        self, task: _Task, target: SaveTarget, parts: Sequence[Written]
    ) -> Saved | str:
        """Combine the files that all ranks have written into one complete save, and
        return it. Only rank 0 calls this. If it fails, return a text with the reason.
        """
        documents = self._describe(task, parts)
        if isinstance(documents, str):
            return documents
        self._documents = documents
        try:
            target.write(INDEX, documents.index)
            path = self.shelf.publish(task.step, target, documents.manifest)
        except Exception as error:  # whatever it is: the other ranks wait to hear of it
            return _describe_error(error)
        return Saved(
            step=task.step,
            attempt=self.shelf.attempt,
            path=path,
            manifest_sha256=documents.manifest_sha256,
            size_bytes=documents.size_bytes,
            seconds=time.monotonic() - task.began,
            stall_seconds=task.stall_seconds + self._waited,
            metrics=task.metrics,
            saved_at=documents.saved_at,
        )


def say(text: str) -> None:
    """Write a line to standard error (the job's log)."""
    print(f"corral: {text}", file=sys.stderr, flush=True)


def _describe_error(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error) if isinstance(error, CorralError) else repr(error)
    file_text = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{file_text}"
