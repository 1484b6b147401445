"""Keep a Python at its start, with modules imported, and fork ranks from it.

The hook runs this file at the start of a Python that the shim has started with a rank's
command. The Python imports what the ranks of the attempt before have imported, and does
not go on. Each order of the shim forks it. The fork returns to the start of the Python,
which then runs the program as it would in any new process.

The fork is a child of the shim, not of this process: `clone` with CLONE_PARENT.
"""

import ctypes
import importlib
import json
import os
import signal
import socket
import sys

IMPORTS = "imports.json"
LINE_BYTES = 1 << 20
CLONE_PARENT = 0x8000
CLONE_CHILD_SETTID = 0x1000000
CLONE_CHILD_CLEARTID = 0x200000
PR_SET_PDEATHSIG = 1
PR_GET_TID_ADDRESS = 40
# number of the system call, and whether the last two arguments are swapped
CLONE_CALLS = {"x86_64": (56, False), "aarch64": (220, True)}
# variables that the shell has set for this process, and would set for any other
OF_SHELL = ("PWD", "OLDPWD", "SHLVL", "_")
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")


class NotWarm(Exception):
    """The reason why no rank can be forked from this process."""


class Preparation(object):
    """What this process has imported, and where from."""

    def __init__(self, began):
        self.began = began
        self.present = set(sys.modules)

    def import_modules(self, names):
        """Import the modules in this order. One that fails is left out."""
        for name in names:
            if name not in sys.modules:
                try:
                    importlib.import_module(name)
                except BaseException:
                    continue

    def check_process(self):
        """Raise NotWarm if a fork of this process would lack something."""
        end_idle_threads()
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:
            raise NotWarm(
                "the imported modules have started %d threads" % (threads - 1)
            )
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink("/proc/self/fd/" + descriptor)
            except OSError:
                continue
            if target.startswith(DEVICES):
                raise NotWarm("the imported modules have opened " + target)

    def check_modules(self, folder):
        """Raise NotWarm if a new process would import other modules: the program's
        folder has some of the same names, or packages have changed."""
        imported = {name.partition(".")[0] for name in set(sys.modules) - self.present}
        for name in os.listdir(folder):
            if name.partition(".")[0] in imported:
                raise NotWarm("the folder of the program has its own " + name)
        for path in sys.path:
            try:
                changed = os.stat(path).st_mtime
            except OSError:
                continue
            is_packages = path.endswith(("site-packages", "dist-packages"))
            if is_packages and changed > self.began:
                raise NotWarm("packages have changed in " + path)


def end_idle_threads():
    """Fork once: libraries such as OpenBLAS end their idle threads before a fork, and
    start them again when they have work."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def thread_id_address(libc):
    """Return where the C library keeps the id of this thread."""
    address = ctypes.c_void_p()
    if libc.prctl(PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0) != 0:
        raise NotWarm("this kernel does not report the address of the thread's id")
    return address


def fork_sibling():
    """Fork a child of the parent of this process. Return whether this is the child."""
    libc = ctypes.PyDLL(None, use_errno=True)
    machine = os.uname().machine
    if machine not in CLONE_CALLS:
        raise NotWarm("no fork from a warm Python on machines of type " + machine)
    number, is_swapped = CLONE_CALLS[machine]
    address, nothing = thread_id_address(libc), ctypes.c_void_p(0)
    last = (nothing, address) if is_swapped else (address, nothing)
    flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | signal.SIGCHLD
    clone = libc.syscall
    clone.restype = ctypes.c_long
    arguments = (ctypes.c_long(number), ctypes.c_long(flags), nothing, nothing)
    before = ctypes.pythonapi.PyOS_BeforeFork
    in_child = ctypes.pythonapi.PyOS_AfterFork_Child
    in_parent = ctypes.pythonapi.PyOS_AfterFork_Parent
    for function in (before, in_child, in_parent):
        function.restype = None
    before()
    pid = clone(*(arguments + last))
    if pid == 0:
        in_child()
        return True
    in_parent()
    if pid < 0:
        raise NotWarm(
            "this process cannot be forked: " + os.strerror(ctypes.get_errno())
        )
    return False


def become_rank(order, descriptors, control):
    """Give this fork all that a new process would have, and report it to the shim."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setsid()
    os.chdir(order["work"])
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    of_shell = {name: os.environ[name] for name in OF_SHELL if name in os.environ}
    os.environ.clear()
    os.environ.update(order["env"])
    os.environ.update(of_shell)
    renew_chance()
    importlib.invalidate_caches()
    control.sendall(b"\n")
    control.close()


def renew_chance():
    """Seed again what each process seeds by chance when it imports a module. The module
    `random` does so after each fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def receive(control):
    """Return the next order of the shim and its descriptors; None at the end."""
    import array

    received, descriptors = b"", array.array("i")
    while not received.endswith(b"\n"):
        data, ancillary, _, _ = control.recvmsg(
            LINE_BYTES, socket.CMSG_SPACE(3 * descriptors.itemsize)
        )
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content)
        if not data:
            return None
        received += data
    return json.loads(received.decode()), list(descriptors)


def wait_for_orders(here):
    """Prepare this process, and fork it at each order. Returns in each fork."""
    control = socket.socket(fileno=os.dup(0))
    with open(os.path.join(here, IMPORTS)) as file:
        names = json.load(file)
        preparation = Preparation(os.fstat(file.fileno()).st_mtime)
    try:
        preparation.import_modules(names)
        preparation.check_process()
    except NotWarm as reason:
        control.sendall(str(reason).encode() + b"\n")
        os._exit(0)
    control.sendall(b"\n")
    while True:
        received = receive(control)
        if received is None:
            os._exit(0)
        order, descriptors = received
        try:
            preparation.check_modules(order["folder"])
            is_rank = fork_sibling()
        except (NotWarm, OSError) as reason:
            control.sendall(str(reason).encode() + b"\n")
            os._exit(0)
        if is_rank:
            become_rank(order, descriptors, control)
            return
        for descriptor in descriptors:
            os.close(descriptor)
