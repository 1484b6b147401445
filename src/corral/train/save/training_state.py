"""Content of a save of a training run, and its restoration.

A save is one flat dictionary. Tensors are under `model/<name>` and
`optimizer/<i>/<parameter>/<name>`, and torch.distributed.checkpoint shards and reshards
them. Everything else is in two pickled values, `common` (the same on every rank) and
`rank/<r>`. Names are those of the unwrapped module, so that a save of a DDP-wrapped,
compiled or FSDP2 module fits any other form of the same module.
"""

import io
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.tensor import DTensor

from corral.domain.errors import Refusal
from corral.train.save_path import SavePath

COMMON = "common"


class Stateful(Protocol):
    """An object whose state can be read and restored."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any) -> Any: ...


class NoState(Refusal):
    """The error for an object that cannot be saved, because its state cannot be read
    and restored."""

    code = "no_state"


def check_stateful(name: str, value: Any) -> None:
    """Check that an object's state can be read and restored, so that the error appears
    before the first save.

    Raises: NoState if it cannot.
    """
    lacks = [
        method
        for method in ("state_dict", "load_state_dict")
        if value is not None and not callable(getattr(value, method, None))
    ]
    if not lacks:
        return
    hint = (
        "use corral.train.Sampler(len(dataset), batch_size)"
        if name == "data"
        else f"leave {name} out, or give it state_dict and load_state_dict"
    )
    text = f"resume({name}=...): {type(value).__name__} has no {lacks[0]}; {hint}"
    raise NoState(text, hint=hint)  # a traceback shows the text alone


class WorldChanged(Refusal):
    """The error for a saved data position that is only valid for the number of ranks at
    the time of the save."""

    code = "world_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """State of the training: `step` steps are complete. `path`: the save from which the
    state was loaded; None if training starts from the beginning."""

    step: int = 0
    path: SavePath | None = None
    observed_seconds: float = 0.0  # that this job has trained, over all attempts

    @property
    def fresh(self) -> bool:
        return self.path is None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateHolder:
    """The objects of a run whose state is saved and restored. `others` are more
    objects, by name."""

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer] = ()
    scheduler: Stateful | None = None
    data: Stateful | None = None
    others: Mapping[str, Stateful] = field(default_factory=dict)
    rank: int = 0
    world_size: int = 1

    def capture(self, *, step: int, observed_seconds: float) -> dict[str, Any]:
        """Return the current state. It contains the live tensors, not copies."""
        tensors, oddments = self._model_state()
        own_keys = tensors.keys() - (self._replicated_buffers() if self.rank else set())
        state: dict[str, Any] = {
            key: value for key, value in tensors.items() if key in own_keys
        }
        plain: dict[str, Any] = {}
        for key, value in self._optimizer_state():
            (state if isinstance(value, torch.Tensor) else plain)[key] = value
        common = {
            "step": step,
            "world_size": self.world_size,
            "observed_seconds": observed_seconds,
            "model": oddments,
            "optimizer": plain,
            "groups": [self._groups(optimizer) for optimizer in self.optimizers],
            "scheduler": self.scheduler.state_dict() if self.scheduler else None,
            "others": {
                name: stateful.state_dict() for name, stateful in self.others.items()
            },
        }
        data = self.data.state_dict() if self.data else None
        state[COMMON] = _pickle_to_bytes(common)
        state[f"rank/{self.rank}"] = _pickle_to_bytes(
            {"random": random_state(), "data": data}
        )
        return state

    def template(self, saved: Metadata) -> dict[str, Any]:
        """Return the state into which a save is read: the live tensors, and new tensors
        where none exist yet. `saved`: the save's metadata."""
        state: dict[str, Any] = dict(self._model_state()[0])
        parameters = dict(self._parameters())
        for key, stored_entry in saved.state_dict_metadata.items():
            if key.startswith("optimizer/") and isinstance(
                stored_entry, TensorStorageMetadata
            ):
                number, name, entry = _parse_optimizer_key(key)
                if number < len(self.optimizers):
                    parameter = parameters.get(name)
                    held_state = (
                        self.optimizers[number].state.get(parameter, {})
                        if parameter is not None
                        else {}
                    )
                    held_entry = held_state.get(entry)
                    state[key] = _room_for(stored_entry, parameter, held_entry)
        state[COMMON] = b""
        own_key = f"rank/{self.rank}"
        state[own_key if own_key in saved.state_dict_metadata else "rank/0"] = b""
        return state

    def restore(self, filled: Mapping[str, Any]) -> dict[str, Any]:
        """Restore the objects from the filled template. Return the state that is common
        to all ranks.

        Raises: WorldChanged if the data position does not fit the number of ranks.
        """
        common = _unpickle_bytes(filled[COMMON])
        own_key = f"rank/{self.rank}"
        own_state = _unpickle_bytes(filled.get(own_key) or filled["rank/0"])
        if common["model"]:
            self._bare_model().load_state_dict(common["model"], strict=False)
        for number, optimizer in enumerate(self.optimizers):
            self._restore_optimizer(number, optimizer, filled, common)
        if self.scheduler and common["scheduler"] is not None:
            self.scheduler.load_state_dict(common["scheduler"])
        for name, stateful in self.others.items():
            if name in common["others"]:
                stateful.load_state_dict(common["others"][name])
        if self.data and own_state["data"] is not None:
            self._restore_data(own_state["data"], common["world_size"])
        if own_key in filled:
            set_random_state(own_state["random"])
        return dict(common)

    def _restore_data(self, saved: Any, saved_world_size: int) -> None:
        reshards = getattr(self.data, "delivered", None) is not None
        if saved_world_size != self.world_size and not reshards:
            raise WorldChanged(
                f"the data position was saved by {saved_world_size} ranks and cannot be divided "
                f"among {self.world_size} ranks",
                hint="use corral.train.Sampler, whose position fits any number of ranks, or run "
                f"on {saved_world_size} ranks",
            )
        if self.data:
            self.data.load_state_dict(saved)

    def _bare_model(self) -> nn.Module:
        model = self.model
        while True:
            inner = getattr(model, "_orig_mod", None)
            if inner is None and isinstance(model, nn.parallel.DistributedDataParallel):
                inner = model.module
            if not isinstance(inner, nn.Module):
                return model
            model = inner

    def _model_state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        tensors: dict[str, torch.Tensor] = {}
        oddments: dict[str, Any] = {}
        for name, value in self._bare_model().state_dict().items():
            if isinstance(value, torch.Tensor):
                tensors[f"model/{_strip_compile_prefix(name)}"] = value
            else:
                oddments[name] = value
        return tensors, oddments

    def _replicated_buffers(self) -> set[str]:
        """Return the keys of the model's buffers that are not sharded. Their values may
        differ between ranks (batch norm); as in DDP, those of rank 0 are used."""
        return {
            f"model/{_strip_compile_prefix(name)}"
            for name, buffer in self._bare_model().named_buffers(remove_duplicate=False)
            if not isinstance(buffer, DTensor)
        }

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for name, parameter in self._bare_model().named_parameters(
            remove_duplicate=False
        ):
            yield _strip_compile_prefix(name), parameter

    def _names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self._parameters()}

    def _optimizer_state(self) -> Iterator[tuple[str, Any]]:
        names = self._names()
        for number, optimizer in enumerate(self.optimizers):
            for parameter, values in optimizer.state.items():
                for key, value in values.items():
                    yield f"optimizer/{number}/{names[id(parameter)]}/{key}", value

    def _groups(self, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
        names = self._names()
        return [
            {**group, "params": [names[id(parameter)] for parameter in group["params"]]}
            for group in optimizer.param_groups
        ]

    def _restore_optimizer(
        self,
        number: int,
        optimizer: torch.optim.Optimizer,
        filled: Mapping[str, Any],
        common: Mapping[str, Any],
    ) -> None:
        """Restore the optimizer state by parameter name. The optimizer's own load
        method then moves it to the right devices."""
        names = self._names()
        order = [
            parameter
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        index_by_name = {
            names[id(parameter)]: index for index, parameter in enumerate(order)
        }
        state: dict[int, dict[str, Any]] = {}
        for key, value in [*filled.items(), *common["optimizer"].items()]:
            if key.startswith(f"optimizer/{number}/"):
                _, name, entry = _parse_optimizer_key(key)
                state.setdefault(index_by_name[name], {})[entry] = value
        saved_groups = (
            common["groups"][number] if number < len(common["groups"]) else []
        )
        groups = [
            {**saved, "params": [index_by_name[name] for name in saved["params"]]}
            for saved in saved_groups
        ]
        if groups:
            optimizer.load_state_dict({"state": state, "param_groups": groups})


def random_state() -> dict[str, Any]:
    """Return the state of every random generator that a training script uses."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def _strip_compile_prefix(name: str) -> str:
    return name.replace("_orig_mod.", "")


def _parse_optimizer_key(key: str) -> tuple[int, str, str]:
    """Split the key `optimizer/<number>/<parameter>/<entry>`. Return (number,
    parameter, entry)."""
    _, number, rest = key.split("/", 2)
    name, entry = rest.rsplit("/", 1)
    return int(number), name, entry


def _room_for(
    kept: TensorStorageMetadata, parameter: nn.Parameter | None, found: Any
) -> torch.Tensor:
    """Return the tensor into which a saved tensor (`kept`) is read: the existing tensor
    `found` if it fits, else a new one that is sharded like its parameter."""
    if isinstance(found, torch.Tensor) and found.shape == kept.size:
        return found
    if parameter is not None and parameter.shape == kept.size:
        return torch.zeros_like(parameter.detach(), dtype=kept.properties.dtype)
    return torch.zeros(kept.size, dtype=kept.properties.dtype)


def _pickle_to_bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpickle_bytes(data: bytes) -> Any:
    # its SHA-256 has been checked
    return torch.load(io.BytesIO(data), weights_only=False)
