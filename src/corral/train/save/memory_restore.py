"""Resuming from the memory of the nodes: the choice of a save that is whole for all
ranks, which is the same on all of them, and the exchange of its files."""

import os
import pickle
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from corral.domain.errors import CorralError
from corral.domain.keep_rule import SaveKey
from corral.train.process_group import ProcessGroup
from corral.train.rank_settings import Settings
from corral.train.save.manifest import MANIFEST, Broken, Manifest, decode
from corral.train.save.memory_folder import MemorySave
from corral.train.save.memory_tier import MemoryTier, agree
from corral.train.save.restore import RestoreCandidate
from corral.train.save.saver import say
from corral.train.save.storage import INDEX, SaveReader, files_to_read
from corral.train.save.training_state import StateHolder
from corral.train.save.verify import verify_files

PIECE_BYTES: Final = 16 * 1024 * 1024
SaveIdentity = tuple[int, int, str]  # attempt, step, hash of the manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRequest:
    """Files of a save on one rank's node: those that are there, and those that its
    ranks read."""

    node: str
    leads: bool
    present: frozenset[str]
    read: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTransfer:
    """A file that one rank sends to the nodes of others."""

    name: str
    sender: int
    receivers: frozenset[int]


def join_memory(
    settings: Settings, attempt: int, gang: ProcessGroup
) -> MemoryTier | None:
    """Return the saves in the memory of this node; None if not all nodes have such
    memory. All ranks must call this together."""
    return MemoryTier.join(
        settings.memory_path,
        attempt,
        gang,
        passed_over_attempt=settings.passed_over_attempt,
    )


def choose_in_memory(
    tier: MemoryTier | None,
    durable: Sequence[RestoreCandidate],
    holder: StateHolder,
    gang: ProcessGroup,
) -> RestoreCandidate | None:
    """Return the newest save in the memory of the nodes that is whole and verifies, if
    it is not older than the newest durable save; None without such a save. The memory of
    the others is freed. All ranks must call this together.

    Args:
        durable: the durable saves from which the job may resume, the best first.
    """
    if tier is None:
        return None
    save = _choose(tier, durable, holder, gang)
    tier.begin_after(save)
    if save is None:
        return None
    if gang.leads:
        say(f"resuming at step {save.step} from the memory of the nodes")
    return RestoreCandidate(
        attempt=save.attempt,
        step=save.step,
        path=save.directory,
        manifest_sha256=None,
    )


def _choose(
    tier: MemoryTier,
    durable: Sequence[RestoreCandidate],
    holder: StateHolder,
    gang: ProcessGroup,
) -> MemorySave | None:
    saves = tier.folder.saves()
    own_durable = [save for save in durable if not save.origin]
    newest = max(((save.attempt, save.step) for save in own_durable), default=(0, 0))
    reports = gang.gather((tier.seat.node, saves))
    identities = gang.share(whole_saves(reports, newest) if gang.leads else [])
    by_identity = {_identity(save): save for save in saves}
    for identity in identities:
        save = by_identity[identity]
        trouble = _make_ready(save, tier, holder, gang)
        if not trouble:
            return save
        if gang.leads:
            say(
                f"the save of step {save.step} in the memory of the nodes is not used: "
                f"{trouble}; the save before it is used"
            )
    return None


def whole_saves(
    reports: Sequence[tuple[str, Sequence[MemorySave]]], newest_durable: SaveKey
) -> list[SaveIdentity]:
    """Return the saves of which the nodes together have all files, newest first, and
    which are not older than the newest durable save.

    Args:
        reports: the name of each rank's node, and the saves in its memory.
    """
    nodes = {node for node, _ in reports}
    present: dict[SaveIdentity, dict[str, MemorySave]] = defaultdict(dict)
    for node, saves in reports:
        for save in saves:
            present[_identity(save)][node] = save
    whole = [
        identity
        for identity, by_node in present.items()
        if by_node.keys() == nodes
        and identity[:2] >= newest_durable
        and _has_all_files(list(by_node.values()))
    ]
    return sorted(whole, reverse=True)


def _identity(save: MemorySave) -> SaveIdentity:
    return (save.attempt, save.step, save.manifest_sha256)


def _has_all_files(saves: Sequence[MemorySave]) -> bool:
    return saves[0].needed <= frozenset().union(*(save.present for save in saves))


def _make_ready(
    save: MemorySave, tier: MemoryTier, holder: StateHolder, gang: ProcessGroup
) -> str:
    """Fetch the files that the ranks of this node read and that other nodes have, and
    verify them. Return a text about the problem, the same on all ranks, or ""."""
    read, trouble = _files_of_rank(save, holder)
    if trouble := agree(trouble, gang):
        return trouble
    request = FileRequest(
        node=tier.seat.node, leads=tier.seat.leads, present=save.present, read=read
    )
    requests = gang.gather(request)
    transfers = gang.share(plan_transfers(requests) if gang.leads else [])
    read_on_node = gang.share(_files_by_node(requests))[tier.seat.node]
    if trouble := agree(_exchange(save.directory, transfers, gang), gang):
        return trouble
    return agree(_verify(save, read_on_node, tier), gang)


def _files_of_rank(save: MemorySave, holder: StateHolder) -> tuple[frozenset[str], str]:
    """Return the files that this rank reads, and a text about the problem or ""."""
    try:
        manifest = _manifest(save)
        verify_files(save.directory, manifest, {INDEX})
        reader = SaveReader(save.directory)
        metadata = reader.read_metadata()
        names = files_to_read(holder.template(metadata), reader, metadata)
    except (Broken, OSError) as error:
        return frozenset(), str(error)
    except (CorralError, RuntimeError, ValueError, KeyError) as error:
        return frozenset(), f"it does not fit this model: {error}"
    except pickle.UnpicklingError as error:
        return frozenset(), f"it cannot be read: {error}"
    return names | {INDEX}, ""


def _manifest(save: MemorySave) -> Manifest:
    return decode((save.directory / MANIFEST).read_bytes())


def _files_by_node(requests: Sequence[FileRequest]) -> dict[str, frozenset[str]]:
    names: dict[str, frozenset[str]] = defaultdict(frozenset)
    for request in requests:
        names[request.node] |= request.read
    return dict(names)


def plan_transfers(requests: Sequence[FileRequest]) -> list[FileTransfer]:
    """Return the transfers after which each node has the files that its ranks read.
    `requests` are those of the ranks, by rank."""
    leaders = {
        request.node: rank for rank, request in enumerate(requests) if request.leads
    }
    present = {request.node: request.present for request in requests}
    receivers: dict[str, set[int]] = defaultdict(set)
    for node, names in _files_by_node(requests).items():
        for name in names - present[node]:
            receivers[name].add(leaders[node])
    return [
        FileTransfer(
            name=name,
            sender=min(leaders[node] for node in leaders if name in present[node]),
            receivers=frozenset(ranks),
        )
        for name, ranks in sorted(receivers.items())
    ]


def _exchange(
    directory: Path, transfers: Sequence[FileTransfer], gang: ProcessGroup
) -> str:
    """Send and receive the files. A rank that fails continues, because the others wait
    for it. Return a text about the problem, or ""."""
    trouble = ""
    for transfer in transfers:
        try:
            _transfer(directory / transfer.name, transfer, gang)
        except OSError as error:
            trouble = f"{transfer.name}: {error.strerror or error}"
    return trouble


def _transfer(path: Path, transfer: FileTransfer, gang: ProcessGroup) -> None:
    """Broadcast a file piece by piece. Raises: OSError, after the last piece."""
    sends = gang.rank == transfer.sender
    receives = gang.rank in transfer.receivers
    failure: OSError | None = None
    size = _shared_size(path, transfer, gang)
    pieces = _pieces(path, size) if sends else iter(())
    temporary = path.with_name(f"{path.name}.new")
    descriptor = -1
    try:
        if receives:
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            os.posix_fallocate(descriptor, 0, max(1, size))
            os.ftruncate(descriptor, size)
    except OSError as error:
        failure = error
    for start in range(0, size, PIECE_BYTES):
        length = min(PIECE_BYTES, size - start)
        piece = next(pieces, None)
        if piece is None:
            piece = torch.empty(length, dtype=torch.uint8)
        dist.broadcast(piece, src=transfer.sender, group=gang.group)
        if receives and failure is None:
            os.pwrite(descriptor, piece.numpy().data, start)
    if descriptor >= 0:
        os.close(descriptor)
    if failure is not None:
        raise failure
    if receives:
        temporary.rename(path)


def _shared_size(path: Path, transfer: FileTransfer, gang: ProcessGroup) -> int:
    """Return the size of the sender's file on all ranks; 0 if it cannot be read."""
    size = 0
    if gang.rank == transfer.sender and path.is_file():
        size = path.stat().st_size
    return gang.largest([size]).wait()[0]


def _pieces(path: Path, size: int) -> Iterator[torch.Tensor]:
    with path.open("rb", buffering=0) as file:
        for start in range(0, size, PIECE_BYTES):
            piece = bytearray(min(PIECE_BYTES, size - start))
            file.readinto(piece)
            yield torch.frombuffer(piece, dtype=torch.uint8)


def _verify(save: MemorySave, names: Collection[str], tier: MemoryTier) -> str:
    """Verify this rank's share of the files that the ranks of its node read."""
    try:
        verify_files(
            save.directory,
            _manifest(save),
            names,
            part=tier.seat.position,
            parts=tier.seat.ranks,
        )
    except (Broken, OSError) as error:
        return str(error)
    return ""
