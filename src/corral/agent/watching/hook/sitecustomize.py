"""Count the optimizer steps of any PyTorch program, and report them to its shim.

Python imports this file before the program, because its folder is first on PYTHONPATH.
It travels with the attempt, and runs in the Python of the job: it needs nothing but the
standard library, and any version of Python reads it. Other programs get one finder of
modules that does nothing, and PyTorch is not imported for it.
"""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BEAT_SECONDS = 0.25
SEND_SECONDS = 5.0
REMEMBERED_STEPS = 256
# corral.train reports more than this file can see
REPORTS_ITSELF = "corral.train.shim_channel"


class StepCounter(object):
    """The steps of this process, and how it spent its time."""

    def __init__(self):
        self.pid = os.getpid()
        self.step = 0
        self.step_seconds = []  # of the newest steps
        self.compute_seconds = 0.0
        self.data_seconds = 0.0
        self._of_optimizer = {}
        self._counted_data = 0.0
        self._stepped_at = None
        self._connection = None
        self._sent_step = 0

    def optimizer_stepped(self, optimizer, args, kwargs):
        """Count a step. A program with several optimizers makes as many steps as the
        one that steps most often."""
        if os.getpid() != self.pid:
            self.__init__()  # a fork of a program that has made steps
        count = self._of_optimizer.get(id(optimizer), 0) + 1
        self._of_optimizer[id(optimizer)] = count
        if count <= self.step:
            return
        self.step = count
        now = time.monotonic()
        if self._stepped_at is None:
            self._begin()
        else:
            seconds = now - self._stepped_at
            data = min(seconds, self.data_seconds - self._counted_data)
            self.compute_seconds += seconds - data
            self.step_seconds.append(seconds)
            del self.step_seconds[:-REMEMBERED_STEPS]
        self._counted_data = self.data_seconds
        self._stepped_at = now

    # torch.compile is not to look into it
    optimizer_stepped._torchdynamo_disable = True

    def _begin(self):
        import atexit
        import threading

        self._sending = threading.Lock()
        thread = threading.Thread(target=self._report, name="corral-watch")
        thread.daemon = True
        thread.start()
        atexit.register(self._send)

    def _report(self):
        while REPORTS_ITSELF not in sys.modules and os.getpid() == self.pid:
            self._send()
            time.sleep(BEAT_SECONDS)

    def _send(self):
        """Send the newest step, if it is new. Without a shim, try at the next beat."""
        if REPORTS_ITSELF in sys.modules or os.getpid() != self.pid:
            return
        with self._sending:
            step = self.step
            if step == self._sent_step:
                return
            try:
                if self._connection is None:
                    self._connection = connect(os.environ["CORRAL_SOCKET"])
                self._connection.sendall(self._message(step))
                self._sent_step = step
            except OSError:
                self._connection = None

    def _message(self, step):
        import json

        # a copy, because the program goes on
        recent = sorted(list(self.step_seconds))
        usual = recent[int(0.99 * (len(recent) - 1))] if recent else 0.0
        message = {
            "type": "steps",
            "rank": int(os.environ.get("RANK") or 0),
            "local_rank": int(os.environ.get("LOCAL_RANK") or 0),
            "step": step,
            "p99_seconds": usual,
            "compute_seconds": round(self.compute_seconds, 6),
            "data_seconds": round(self._counted_data, 6),
        }
        return json.dumps(message).encode() + b"\n"


class Finder(object):
    """Calls a function with each of some modules, once Python has imported it."""

    def __init__(self, functions):
        self._functions = functions

    def find_spec(self, name, path=None, target=None):
        function = self._functions.pop(name, None)
        if function is None:
            return None
        spec = _frozen_importlib._find_spec(name, path)
        loader = getattr(spec, "loader", None)
        if hasattr(loader, "exec_module"):
            original = loader.exec_module

            def execute(module):
                del loader.exec_module
                original(module)
                try:
                    function(module)
                except Exception:  # the program runs without it
                    pass

            loader.exec_module = execute
        return spec


counter = StepCounter()


def watch_steps(module):
    module.register_optimizer_step_post_hook(counter.optimizer_stepped)


def watch_data(module):
    """Measure how long the program waits for its data loaders."""
    import functools

    kind = module._BaseDataLoaderIter
    original = kind.__next__

    @functools.wraps(original)
    def measured(self):
        began = time.monotonic()
        try:
            return original(self)
        finally:
            counter.data_seconds += time.monotonic() - began

    kind.__next__ = measured


def connect(path):
    """Connect to the shim, also where its path is longer than an address may be."""
    import socket

    folder, name = os.path.split(path)
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect("/proc/self/fd/%d/%s" % (directory, name))
        except OSError:
            connection.close()
            raise
        connection.settimeout(SEND_SECONDS)
        return connection
    finally:
        os.close(directory)


def run_other():
    """Run the `sitecustomize` that Python would import without this one."""
    sys.path[:] = [path for path in sys.path if path != HERE]
    finder = _frozen_importlib_external.PathFinder
    spec = finder.find_spec("sitecustomize", sys.path)
    if spec is not None:
        module = _frozen_importlib.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if sys.version_info >= (3, 7):
    # Modules that each Python has loaded already; any other one would make each start
    # of a Python slower by milliseconds.
    import _frozen_importlib
    import _frozen_importlib_external

    if os.environ.get("CORRAL_SOCKET"):
        sys.meta_path.insert(
            0,
            Finder(
                {
                    "torch.optim.optimizer": watch_steps,
                    "torch.utils.data.dataloader": watch_data,
                }
            ),
        )
    run_other()
