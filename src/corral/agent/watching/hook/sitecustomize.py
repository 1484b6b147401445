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
STALL_SECONDS = 5.0  # without a step, after which the process reports where it stands
STALL_REPORT_SECONDS = 2.0
END_SECONDS = 1.0
MOST_COLLECTIVES = 20
MOST_FRAMES = 50
NAME_LETTERS = 200
SOCKET = os.environ.get("CORRAL_SOCKET")  # a program may empty its environment
WARM_START = "CORRAL_WARM_START"  # set for a Python from which ranks are forked
LEARNED_STEP = 2  # what the first step imports has been imported then
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
        self._optimizers = set()  # that have stepped since the newest step began
        self._thread = None
        self._counted_data = 0.0
        self._stepped_at = None
        self._connection = None
        self._sent_step = 0
        self._ended = False
        self._reported_at = 0.0  # where the process stands
        self._sent_imports = False

    def optimizer_stepped(self, optimizer, args, kwargs):
        """Count a step. A step begins when an optimizer steps again, so that several
        optimizers share the steps, and the next model of a search goes on counting."""
        if os.getpid() != self.pid:
            self._begin_again()
        if self._optimizers and id(optimizer) not in self._optimizers:
            self._optimizers.add(id(optimizer))
            return
        self._optimizers = {id(optimizer)}
        self.step += 1
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

    def data_waited(self, seconds):
        """Record a wait for data of the thread that makes the steps. Other threads may
        fetch ahead, while the steps go on."""
        if get_ident() == self._thread:
            self.data_seconds += seconds

    def _begin_again(self):
        """Count from 0 in a fork of a program that has made steps."""
        connection = self._connection
        self.__init__()
        if connection is not None:
            connection.close()

    def _begin(self):
        import atexit
        import threading

        self._thread = get_ident()
        self._sending = threading.Lock()
        thread = threading.Thread(target=self._report, name="corral-watch")
        thread.daemon = True
        try:
            thread.start()
        except RuntimeError:  # no more threads; the last step is sent at the end
            pass
        try:
            atexit.register(self._end)
        except RuntimeError:  # the program ends already
            pass

    def _report(self):
        while os.getpid() == self.pid:
            self._send()
            self._send_imports()
            self._send_stall()
            time.sleep(BEAT_SECONDS)

    def _send(self):
        """Send the newest step, if it is new. Without a shim, try at the next beat."""
        if REPORTS_ITSELF in sys.modules or os.getpid() != self.pid:
            return
        with self._sending:
            step = self.step
            if step == self._sent_step:
                return
            if self._send_message(self._message(step)):
                self._sent_step = step

    def _send_imports(self):
        """Send the names of the installed modules that the program has imported."""
        if self._sent_imports or self.step < LEARNED_STEP or has_other_file:
            return
        self._sent_imports = True
        if number_of("LOCAL_RANK") != 0:
            return
        import json

        message = {"type": "imports", "names": installed_modules()}
        with self._sending:
            self._send_message(json.dumps(message).encode() + b"\n")

    def _send_stall(self):
        """Send where the process stands, if it has made no step for some time."""
        now = time.monotonic()
        if (
            now - (self._stepped_at or now) < STALL_SECONDS
            or now - self._reported_at < STALL_REPORT_SECONDS
        ):
            return
        self._reported_at = now
        with self._sending:
            if self._ended:
                return
            try:
                message = stall_message(number_of("RANK"), self.step, self._thread)
            except Exception:  # another version of PyTorch; the job goes on
                return
            self._send_message(message)

    def _send_message(self, message):
        """Send a message, and return whether it could be sent."""
        try:
            if self._connection is None:
                self._connection = connect(SOCKET)
            self._connection.sendall(message)
        except OSError:
            self._connection = None
            return False
        return True

    def _end(self):
        if os.getpid() != self.pid:
            return
        self._send()
        # a thread inside PyTorch while Python ends would abort the process
        if self._sending.acquire(timeout=END_SECONDS):
            self._ended = True
            self._sending.release()
        connection = self._connection
        if connection is not None:
            connection.close()

    def _message(self, step):
        import json

        # a copy, because the program goes on
        recent = sorted(list(self.step_seconds))
        usual = recent[int(0.99 * (len(recent) - 1))] if recent else 0.0
        message = {
            "type": "steps",
            "rank": number_of("RANK"),
            "local_rank": number_of("LOCAL_RANK"),
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
        try:
            spec = _frozen_importlib._find_spec(name, path)
        finally:
            # the program may only ask whether the module exists
            self._functions[name] = function
        loader = getattr(spec, "loader", None)
        if hasattr(loader, "exec_module") and hasattr(loader, "__dict__"):
            original = loader.exec_module

            def execute(module):
                del loader.exec_module
                original(module)
                if self._functions.pop(name, None) is None:
                    return
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
            counter.data_waited(time.monotonic() - began)

    kind.__next__ = measured


def stall_message(rank, step, thread):
    """Return a message that says where a thread stands, and which collective operations
    the process has begun last."""
    import json

    collectives, is_pending = last_collectives()
    message = {
        "type": "stalled",
        "rank": rank,
        "step": step,
        "collectives": collectives,
        "is_pending": is_pending,
        "frames": frames_of(thread),
    }
    return json.dumps(message).encode() + b"\n"


def frames_of(thread):
    """Return the calls of a thread, the innermost first."""
    frame, calls = sys._current_frames().get(thread), []
    while frame is not None and len(calls) < MOST_FRAMES:
        code = frame.f_code
        file = code.co_filename[-NAME_LETTERS:]
        calls.append([code.co_name[-NAME_LETTERS:], file, frame.f_lineno or 0])
        frame = frame.f_back
    return calls


def last_collectives():
    """Return numbers and names of the last collective operations of the group of all
    ranks, and whether the newest has not completed; None if that is not known."""
    import json

    torch = sys.modules.get("torch")
    module = getattr(getattr(torch, "_C", None), "_distributed_c10d", None)
    dump = getattr(module, "_dump_fr_trace_json", None)
    if dump is None:
        return [], None
    entries = [
        entry
        for entry in json.loads(dump()).get("entries", [])
        if entry["process_group"][0] == "0" and not entry["is_p2p"]
    ]
    entries = sorted(entries, key=lambda entry: entry["collective_seq_id"])
    newest = [
        [entry["collective_seq_id"], entry["profiling_name"][:NAME_LETTERS]]
        for entry in entries[-MOST_COLLECTIVES:]
    ]
    # the operations of gloo have one state
    if not entries or not entries[-1]["profiling_name"].startswith("nccl"):
        return newest, None
    return newest, entries[-1]["state"] != "completed"


def installed_modules():
    """Return the names of the imported modules of the standard library and of installed
    packages, in the order of their imports."""
    library = os.path.dirname(os.path.abspath(os.__file__))
    names = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__dict__", {}).get("__spec__")
        origin = getattr(spec, "origin", None) or ""
        folders = origin.split(os.sep)
        is_package = "site-packages" in folders or "dist-packages" in folders
        if is_package or origin.startswith(library + os.sep):
            names.append(name)
    return names


def number_of(name):
    """Return the number in a variable of the environment; 0 without one."""
    try:
        return int(os.environ.get(name) or 0)
    except ValueError:
        return 0


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
    """Run the `sitecustomize` that Python would import without this one. Return whether
    there is any that does not belong to Python itself."""
    sys.path[:] = [path for path in sys.path if path != HERE]
    finder = _frozen_importlib_external.PathFinder
    spec = finder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = _frozen_importlib.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
        return os.path.dirname(spec.origin or "") != os.path.dirname(os.__file__)
    return False


def start_warm():
    """Import what other ranks have imported, and return in a fork that is a rank."""
    name = "corral_warm_start"
    file = os.path.join(HERE, "warm_start.py")
    loader = _frozen_importlib_external.SourceFileLoader(name, file)
    spec = _frozen_importlib.ModuleSpec(name, loader, origin=file)
    module = _frozen_importlib.module_from_spec(spec)
    loader.exec_module(module)
    module.wait_for_orders(HERE)
    counter.__init__()


if sys.version_info >= (3, 6):
    # Modules that each Python has loaded already; any other one would make each start
    # of a Python slower by milliseconds.
    import _frozen_importlib
    import _frozen_importlib_external
    from _thread import get_ident

    if SOCKET:
        sys.meta_path.insert(
            0,
            Finder(
                {
                    "torch.optim.optimizer": watch_steps,
                    "torch.utils.data.dataloader": watch_data,
                }
            ),
        )
    has_other_file = run_other()
    if WARM_START in os.environ:
        start_warm()
