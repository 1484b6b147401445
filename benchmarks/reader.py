"""Reader beside torchdata, litdata and webdataset: samples a second of 2 KB token
samples, and the first batch after a resume at sample 10^9. Each peer runs in a Python
of its own:

    python benchmarks/reader.py --torchdata PYTHON --litdata PYTHON --webdataset PYTHON
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

LENGTH = 1024
SAMPLES = 12_000
BATCH = 32
ROUNDS = 3


def corral_batches(folder: Path) -> Iterator[Any]:
    from corral.train.data.reader import Reader
    from corral.train.data.token_shards import Tokens

    source = Tokens(folder / "tokens", LENGTH, mixed_shards=None)
    return iter(Reader(source, BATCH, seed=1, rank=0, world_size=1))


def torchdata_batches(folder: Path) -> Iterator[Any]:
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    path = folder / "tokens" / "0.bin"
    tokens = np.memmap(path, np.uint16, "r").reshape(-1, LENGTH)

    class Samples(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return len(tokens)

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.from_numpy(tokens[index].astype(np.int64))

    return iter(StatefulDataLoader(Samples(), BATCH, shuffle=True, num_workers=0))


def litdata_batches(folder: Path) -> Iterator[Any]:
    from litdata import StreamingDataLoader, StreamingDataset

    data = StreamingDataset(str(folder / "litdata"), shuffle=True)
    return iter(StreamingDataLoader(data, batch_size=BATCH, num_workers=0))


def webdataset_batches(folder: Path) -> Iterator[Any]:
    import webdataset

    data = webdataset.WebDataset(str(folder / "set.tar"), shardshuffle=False)
    arrays = data.shuffle(1000).map(
        lambda sample: np.frombuffer(sample["bin"], np.uint16).astype(np.int64)
    )
    return iter(arrays.batched(BATCH))


PEERS: dict[str, Callable[[Path], Iterator[Any]]] = {
    "corral": corral_batches,
    "torchdata": torchdata_batches,
    "litdata": litdata_batches,
    "webdataset": webdataset_batches,
}


def write_set(folder: Path) -> None:
    tokens = np.arange(SAMPLES * LENGTH, dtype=np.uint32).astype(np.uint16)
    (folder / "tokens").mkdir()
    tokens.tofile(folder / "tokens" / "0.bin")
    with tarfile.open(folder / "set.tar", "w") as archive:
        for number, sample in enumerate(tokens.reshape(-1, LENGTH)):
            member = tarfile.TarInfo(f"{number:06}.bin")
            member.size = 2 * LENGTH
            archive.addfile(member, BytesIO(sample.tobytes()))


def write_litdata(folder: Path) -> None:
    from litdata.streaming.writer import BinaryWriter

    tokens = np.memmap(folder / "tokens" / "0.bin", np.uint16, "r")
    writer = BinaryWriter(str(folder / "litdata"), chunk_bytes="16MB")
    for number, sample in enumerate(tokens.reshape(-1, LENGTH)):
        writer[number] = np.asarray(sample).astype(np.int32)
    writer.done()
    writer.merge()


def measure(name: str, folder: Path) -> dict[str, Any]:
    if name == "litdata" and not (folder / "litdata").exists():
        write_litdata(folder)
    batches = PEERS[name](folder)
    next(batches)
    began = time.perf_counter()
    count = sum(1 for _ in islice(batches, SAMPLES // BATCH - 64))
    return {"samples_per_second": count * BATCH / (time.perf_counter() - began)}


def first_batch_seconds() -> float:
    """Return the seconds until the first batch after a resume at sample 10^9."""
    from corral.train.data.sample_order import SampleOrder

    began = time.perf_counter()
    order = SampleOrder(np.full(2000, 1_000_000), seed=1, mixed_shards=None)
    order.locate(10**9, BATCH)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("torchdata", "litdata", "webdataset"):
        parser.add_argument(f"--{name}", help="Python that has this package")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        print(json.dumps(measure(chosen.measure[0], Path(chosen.measure[1]))))
        return
    pythons = {"corral": sys.executable}
    pythons |= {
        name: getattr(chosen, name) for name in PEERS if getattr(chosen, name, None)
    }
    rates: dict[str, list[float]] = {name: [] for name in pythons}
    with tempfile.TemporaryDirectory() as folder:
        write_set(Path(folder))
        for _ in range(ROUNDS):
            for name, python in pythons.items():
                command = [python, __file__, "--measure", name, folder]
                output = subprocess.run(
                    command, check=True, capture_output=True, text=True
                ).stdout
                rate = json.loads(output.splitlines()[-1])["samples_per_second"]
                rates[name].append(rate)
    for name, measured in rates.items():
        ratio = median(rates["corral"]) / median(measured)
        print(f"| {name} | {median(measured):,.0f} | {ratio:.2f} |")
    print(f"first batch at sample 10^9: {first_batch_seconds():.3f} s")


if __name__ == "__main__":
    main()
