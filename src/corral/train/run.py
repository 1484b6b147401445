"""A training run: the object that a training script uses to start, resume and step."""

import atexit
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

import torch
from torch import nn

from corral.domain.keep_rule import DEFAULT_LAST, SaveKey
from corral.train.data.adapters.choose_adapter import fits_any_ranks, position_of
from corral.train.data.data_feed import DataFeed
from corral.train.data.sample_shares import MicroBatch
from corral.train.process_group import (
    GangLeaver,
    ProcessGroup,
    choose_device,
    join_gang,
)
from corral.train.rank_settings import Settings, read_settings
from corral.train.save.checkpoint_store import CheckpointStore
from corral.train.save.memory_restore import choose_in_memory, join_memory
from corral.train.save.memory_tier import MemoryTier
from corral.train.save.open_store import list_together, open_together
from corral.train.save.restore import (
    RestoreCandidate,
    choose,
    load,
    release_fetched,
)
from corral.train.save.save_reports import (
    complete_report,
    quarantine_report,
    verified_report,
)
from corral.train.save.saver import Saved, Saver, say
from corral.train.save.schedule import SaveSchedule
from corral.train.save.training_state import (
    Stateful,
    StateHolder,
    TrainingState,
    check_stateful,
)
from corral.train.shim_channel import Channel
from corral.train.step_timer import Meter
from corral.train.stop_agreement import Agreement, StopRequests
from corral.train.stop_signal import StopSignal
from corral.train.tracking.attempt_runs import continue_mlflow_run, hide_lost_steps
from corral.train.tracking.trackers import Trackers
from corral.train.wait_time import Waits
from corral.train.work_phase import WorkPhases

STOPPED: Final = 75  # exit code of a rank that ended because it was asked to
FLUSH_SECONDS: Final = 2.0
T = TypeVar("T")


def start(
    *,
    checkpoint: str | None = None,
    interval: float | str = "auto",
    keep: int | Mapping[str, Any] = DEFAULT_LAST,
) -> "Run":
    """Join the gang that the environment describes, and choose the device of this rank.

    Inside Corral the spec of the job applies. Outside Corral the arguments apply, and
    without `checkpoint` nothing is saved. `interval` is "auto" or seconds. `keep` is the
    number of newest saves that stay on disk, or a mapping: {"last": 3, "every": 86400,
    "best": {"metric": "loss", "count": 2, "goal": "min"}}, with `every` in seconds.
    """
    settings = read_settings(
        os.environ, checkpoint=checkpoint, interval=interval, keep=keep
    )
    device = choose_device(settings)
    continue_mlflow_run(os.environ, settings.rank)
    return Run(settings, device, join_gang(settings, device))


class Run:
    """One rank's training run. The script may read `rank`, `world_size`, `local_rank`
    and `device`."""

    def __init__(
        self, settings: Settings, device: torch.device, leaver: GangLeaver
    ) -> None:
        self.device = device
        self._settings = settings
        self._leaver = leaver
        self._talk = ProcessGroup.gather_around()
        self._quiet = ProcessGroup.gather_around()
        leaver.hold(self._talk, self._quiet)
        self.rank = self._talk.rank
        self.world_size = self._talk.world_size
        self.local_rank = settings.local_rank
        self._state = TrainingState()
        self._holder: StateHolder | None = None
        self._saver: Saver | None = None
        self._feed = DataFeed(None, None, device, lambda: self._meter)
        self._reshards = True
        self._committed = {
            (committed.attempt, committed.step)
            for committed in settings.resume or ()
            if settings.is_own(committed)
        }
        self._channel: Channel | None = None
        if settings.socket:
            self._channel = Channel(settings.socket, self.rank, self._on_committed)
        self._phases = WorkPhases(self._channel)
        self._agreement = Agreement(self._talk)
        self._waits = Waits(None, device)
        self._meter = Meter(first_step=0, until=0, world_size=self.world_size)
        self._pace = SaveSchedule(
            fixed_seconds=settings.interval_seconds,
            node_mtbf_seconds=settings.node_mtbf_seconds,
            nodes=settings.nodes,
            failures=max(0, (settings.attempt or 1) - 1),
        )
        self._memory_pace = self._pace.of_nearer_tier()
        self._term = StopSignal()
        self._trackers = Trackers(is_used=self.rank == 0)
        self._step_now = 0
        self._restore_seconds = 0.0

    def resume(
        self,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] = (),
        scheduler: Stateful | None = None,
        data: Stateful | None = None,
        **others: Stateful,
    ) -> TrainingState:
        """Load the newest save that passes verification into these objects. From now
        on, the saves of the run contain these objects.

        The random generators of this rank are restored, too. `others` are more objects
        with `state_dict` and `load_state_dict`, for example a gradient scaler. Every
        rank must call this.
        Raises: NoState, DoesNotFit, WorldChanged, CannotSave, OriginBroken.
        """
        position = position_of(data)
        stateful: dict[str, Any] = {"scheduler": scheduler, "data": position, **others}
        for name, value in stateful.items():
            check_stateful(name, value)
        single = isinstance(optimizer, torch.optim.Optimizer)
        self._holder = StateHolder(
            model=model,
            optimizers=(optimizer,) if single else tuple(optimizer),  # type: ignore[arg-type]
            scheduler=scheduler,
            data=position,
            others=others,
            rank=self.rank,
            world_size=self.world_size,
        )
        self._waits = Waits(model, self.device)
        self._feed = DataFeed(position, model, self.device, lambda: self._meter)
        self._reshards = fits_any_ranks(position)
        if self._settings.checkpoint_path is None:
            return self._state
        shelf, earlier = open_together(self._settings, self._talk)
        self._committed |= earlier
        memory = join_memory(self._settings, shelf.attempt, self._talk)
        self._saver = Saver(
            shelf,
            keep=self._settings.keep,
            talk=self._talk,
            quiet=self._quiet,
            done=self._on_saved,
            failed=self._on_save_failed,
            memory=memory,
        )
        for held_optimizer in self._holder.optimizers:
            self._saver.guard(held_optimizer)
        self._load_newest(shelf, memory, self._holder)
        if self.rank == 0:
            hide_lost_steps(os.environ, self._state.step)
        return self._state

    def _load_newest(
        self, shelf: CheckpointStore, memory: MemoryTier | None, holder: StateHolder
    ) -> None:
        """Load the newest save that passes verification, if there is one."""
        began = time.monotonic()
        durable = list_together(self._settings, shelf, self._talk)
        chosen = choose_in_memory(memory, durable, holder, self._talk)
        if chosen is None:
            chosen = choose(durable, self._talk, self._on_quarantined)
        if chosen is not None:
            self._on_verified(chosen)
            common = load(chosen, holder)
            release_fetched(chosen, self._talk)
            self._state = TrainingState(
                step=common["step"],
                path=chosen.path,
                observed_seconds=common["observed_seconds"],
            )
            self._pace.before_seconds = self._state.observed_seconds
            self._restore_seconds = time.monotonic() - began

    def steps(self, until: int) -> Iterator[int]:
        """Yield the numbers of the remaining steps, from the resumed step up to
        `until`.

        Between two steps the run sends heartbeats, saves if a save is due or requested,
        and ends the process with code 75 if a stop is requested. After the last step
        the state is saved.
        """
        self._term.take()
        self._waits.begin()
        try:
            yield from self._steps(until)
        finally:
            self._waits.end()
            self._term.give_back()
            self._hang_up()

    def log(self, *, loss: Any = None, samples: float = 0, **scalars: Any) -> None:
        """Record the loss of the current step, the samples of this rank, and other
        scalars by name.

        Loss and scalars are numbers or tensors of one element. Each is drawn as a
        curve; at most 32 names of at most 64 letters. Those of rank 0 also go to
        wandb, mlflow and TensorBoard if the script has begun a run or a SummaryWriter.

        Raises: ValueError if there are more names or a name is longer.
        """
        self._meter.log(loss=loss, samples=samples, **scalars)
        values = scalars if loss is None else {"loss": loss, **scalars}
        self._trackers.record(self._step_now, values)
        if not self._waits.counting:
            self._trackers.flush()  # no heartbeat follows outside of steps()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Return a context for work without steps, such as `with
        run.phase("evaluate"):`. While it lasts, a missing step is no hang for a longer
        time.

        Raises: ValueError if the name is empty or has more than 64 letters.
        """
        return self._phases.enter(name)

    def data(self, source: Iterable[T], *, to_device: bool = False) -> Iterator[T]:
        """Yield the batches of the source, and measure the time that training waits for
        them. With `to_device`, copy their tensors to `device`.

        Use this for a loader that prefetches: its sampler then counts the batches that
        training has taken, not those that were prefetched. Starting the iteration uses
        no random number.
        """
        yield from self._feed.batches(source, to_device=to_device)

    def micro_batches(self, batches: Iterator[Any]) -> Iterator[MicroBatch]:
        """Yield the passes of this rank in the current step, from the iterator that
        `data` has returned.

        Multiply the mean loss of each pass by its `weight`: the sum of the gradients is
        then that of the whole global batch, for any number of ranks. DDP and FSDP2
        exchange gradients in the last pass alone.

        Raises: NoPasses unless `resume` received a Sampler or a Reader as `data`.
        """
        return self._feed.micro_batches(batches)

    def _steps(self, until: int) -> Iterator[int]:
        self._cancel_leaving()
        step = first_step = self._state.step
        self._meter = Meter(
            first_step=first_step, until=until, world_size=self.world_size
        )
        for pace in (self._pace, self._memory_pace):
            pace.begin(time.monotonic())
        self._meter.step_begins()
        while step < until:
            self._waits.counting = True
            self._step_now = step
            yield step
            self._waits.counting = False
            step += 1
            now = self._meter.step_done()
            for pace in (self._pace, self._memory_pace):
                pace.step_done(self._meter.step_seconds)
            if step == until:
                break
            if step == first_step + 1 and self._saver is not None:
                self._saver.prepare(self._capture_state(step))
            if self._agreement.due(step):
                self._apply_stop_requests(self._agreement.collect(), step)
                stop_requests = self._stop_requests(time.monotonic())
                self._agreement.begin(
                    step, stop_requests, self._pace.usual_step_seconds
                )
            if step == first_step + 1 or self._meter.due(now):
                self._send_heartbeat(step)
            self._meter.step_begins()
        self._agreement.collect()
        self._step_now = step
        self._state = TrainingState(step=step, path=self._state.path)
        if self._saver is not None and step > first_step:
            self._save_last(self._saver, step)
        self._leave_at_exit()
        self._send_heartbeat(step)

    def _stop_requests(self, now: float) -> StopRequests:
        saver = self._saver
        save = save_in_memory = False
        if saver is not None and self.rank == 0 and not saver.busy:
            for pace in (self._pace, self._memory_pace):
                pace.save_ended(now, save_seconds=saver.last_seconds)
            save = self._pace.due(now) or self._save_is_asked()
            save_in_memory = saver.memory is not None and self._memory_pace.due(now)
        stop = (self._channel.stop if self._channel else None) or self._term.request
        return StopRequests(
            save=save,
            save_in_memory=save_in_memory,
            stop=stop is not None,
            stop_without_save=stop is not None and not stop.save,
            grace_seconds=0.0 if stop is None else stop.grace_seconds,
        )

    def _save_is_asked(self) -> bool:
        """Return whether the shim has requested a save, and clear the request."""
        is_asked = self._channel is not None and self._channel.save_is_asked
        if self._channel is not None and is_asked:
            self._channel.save_is_asked = False
        return is_asked

    def _apply_stop_requests(self, agreed: StopRequests, step: int) -> None:
        if agreed.stop:
            self._stop(agreed, step)
        if self._saver is not None and (agreed.save or agreed.save_in_memory):
            self._start_save(self._saver, step, durable=agreed.save)

    def _start_save(self, saver: Saver, step: int, *, durable: bool = True) -> None:
        began = time.monotonic()
        with self._phases.enter("save"):
            metrics = self._meter.metrics() if self.rank == 0 else ()
            stall = saver.save(
                step, lambda: self._capture_state(step), metrics, durable=durable
            )
        self._meter.save_seconds += stall
        if durable:
            self._pace.save_begun(began, stall)
            self._memory_pace.covered(began)
        else:
            self._memory_pace.save_begun(began, stall)

    def _save_last(self, saver: Saver, step: int) -> None:
        with self._phases.enter("save"):
            saver.wait()
            if saver.last_step != step:
                self._start_save(saver, step)
            saver.wait()
        saver.free_memory(step)

    def _stop(self, agreed: StopRequests, step: int) -> None:
        """Save if a save was requested, within the grace period, and end the process.
        `agreed`: the requests on which all ranks agreed.

        Raises: SystemExit with code 75, always.
        """
        deadline = time.monotonic() + 0.9 * agreed.grace_seconds
        outcome = "without a save, as requested"
        if self._saver is not None and not agreed.stop_without_save:
            saved = self._saver.wait(deadline - time.monotonic()) and self._save_now(
                self._saver, step, deadline
            )
            outcome = (
                "saved"
                if saved
                else "THE SAVE DID NOT COMPLETE within the grace period"
            )
        if self._saver is None or not self._saver.busy:
            self._leave_at_exit()
        if self.rank == 0:
            say(f"stopping at step {step}: {outcome}")
        self._send_heartbeat(step)
        self._hang_up()
        raise SystemExit(STOPPED)

    def _save_now(self, saver: Saver, step: int, deadline: float) -> bool:
        try:
            self._start_save(saver, step)
        except RuntimeError as error:  # another rank ran out of time first
            say(f"the ranks lost their connection while stopping: {error}")
            return False
        saver.wait(max(0.0, deadline - time.monotonic()))
        return saver.free_memory(step)

    def _leave_at_exit(self) -> None:
        """Arrange that no thread of this run is within torch when Python ends. No save
        may be in progress."""
        if self._saver is not None:
            atexit.register(self._close_saver, self._saver)
        self._leaver.leave_at_exit()

    def _cancel_leaving(self) -> None:
        atexit.unregister(self._close_saver)
        self._leaver.stay()

    def _close_saver(self, saver: Saver) -> None:
        """End the saver's thread, and drop the model, which holds the process group."""
        saver.close()
        self._holder = None
        self._waits = Waits(None, self.device)
        self._feed = DataFeed(None, None, self.device, lambda: self._meter)

    def _capture_state(self, step: int) -> dict[str, Any]:
        assert self._holder is not None
        observed = self._pace.observed_seconds(time.monotonic())
        return self._holder.capture(step=step, observed_seconds=observed)

    def _send_heartbeat(self, step: int) -> None:
        fields = self._meter.beat(step, time.monotonic())
        fields["wait_seconds"] = round(self._waits.seconds, 6)
        fields["memory_step"] = self._saver.memory_step if self._saver else None
        fields["restore_seconds"] = round(self._restore_seconds, 6)
        if self._channel is not None:
            self._channel.progress(fields)
        self._trackers.push()

    def _hang_up(self) -> None:
        self._trackers.flush()
        if self._channel is not None:
            self._channel.flush(FLUSH_SECONDS)

    def _on_saved(self, saved: Saved) -> None:
        if self._channel is None:
            self._on_committed([saved.step], pinned=())
            return
        self._channel.save({**complete_report(saved), "reshards": self._reshards})

    def _on_committed(self, steps: Sequence[int], pinned: Sequence[SaveKey]) -> None:
        """Handle the report that the head has recorded the saves of these steps: older
        saves may be removed, except for the pinned ones."""
        saver = self._saver
        if saver is not None and self.rank == 0:
            self._committed |= {(saver.shelf.attempt, step) for step in steps}
            saver.forget(sorted(self._committed), pinned)

    def _on_save_failed(self, step: int, why: str) -> None:
        if self.rank == 0:
            say(
                f"THE SAVE OF STEP {step} FAILED: {why}; training goes on, older saves are "
                "untouched, the next save is tried when it is due"
            )

    def _on_quarantined(self, candidate: RestoreCandidate, why: str) -> None:
        if self._channel is not None:
            self._channel.save(quarantine_report(candidate, why))

    def _on_verified(self, candidate: RestoreCandidate) -> None:
        is_recorded = bool(candidate.manifest_sha256) and not candidate.origin
        if self._channel is not None and self.rank == 0 and is_recorded:
            self._channel.save(verified_report(candidate))
