"""Cost of counting the steps of a program: at the start of Python, and at each step.

    python -m benchmarks.watching [--repeats 9] [--seconds 4]

Runs each program with and without the file that counts, in turns, and prints the least
CPU time of each: other programs on the machine make a run slower, never faster.
"""

import argparse
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from corral.agent.watching.hook_file import lay_out_hook, with_hook

RATES: Final = (100, 1_000)  # steps a second
ASKED_PERCENT: Final = 0.5  # of a step, at 100 steps a second
TRAIN: Final = """
import sys, time, torch
torch.set_num_threads(1)
steps, rate = int(sys.argv[1]), int(sys.argv[2])
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(4, 8)
def step():
    optimizer.zero_grad()
    model(inputs).sum().backward()
    optimizer.step()
step()
began_cpu, due = time.process_time(), time.monotonic()
for _ in range(steps):
    step()
    due += 1 / rate
    time.sleep(max(0.0, due - time.monotonic()))
print(time.process_time() - began_cpu)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/shim.sock"
        listen(path)
        hook = lay_out_hook(folder)
        assert hook is not None
        plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        counted = with_hook({**plain, "CORRAL_SOCKET": path}, hook)
        start(plain, counted, options.repeats)
        script = Path(folder) / "train.py"
        script.write_text(TRAIN)
        for rate in RATES:
            training(plain, counted, script, rate, options)


def start(plain: dict[str, str], counted: dict[str, str], repeats: int) -> None:
    command = [sys.executable, "-c", "pass"]
    without, watched = least_of_both(
        lambda env: start_seconds(command, env), plain, counted, 5 * repeats
    )
    print(
        f"python -c pass: {without * 1e3:.2f} ms of CPU without, "
        f"{watched * 1e3:.2f} ms with: {(watched - without) * 1e3:+.2f} ms"
    )


def training(
    plain: dict[str, str],
    counted: dict[str, str],
    script: Path,
    rate: int,
    options: argparse.Namespace,
) -> None:
    steps = int(options.seconds * rate)
    command = [sys.executable, str(script), str(steps), str(rate)]
    without, watched = least_of_both(
        lambda env: float(subprocess.check_output(command, env=env)),
        plain,
        counted,
        options.repeats,
    )
    cost = (watched - without) / steps
    asked = f" (asked: at most {ASKED_PERCENT} %)" if rate == RATES[0] else ""
    print(
        f"{rate} steps a second: {without / steps * 1e6:.1f} us of CPU a step without, "
        f"{watched / steps * 1e6:.1f} us with: {cost * 1e6:+.1f} us, "
        f"{100 * cost * rate:+.2f} % of a step{asked}"
    )


def least_of_both(
    measure: Callable[[dict[str, str]], float],
    plain: dict[str, str],
    counted: dict[str, str],
    repeats: int,
) -> tuple[float, float]:
    pairs = [(measure(plain), measure(counted)) for _ in range(repeats)]
    return min(first for first, _ in pairs), min(second for _, second in pairs)


def start_seconds(command: list[str], env: dict[str, str]) -> float:
    """Return the CPU time of a program that runs to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def listen(path: str) -> None:
    """Take what programs report, as a shim does."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def drain(connection: socket.socket) -> None:
        with connection:
            while connection.recv(65_536):
                pass

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=drain, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


if __name__ == "__main__":
    main()
