"""What ranks print last and how they end names what failed, and the rank that began."""

import pytest

from corral.domain.attempt import Exit
from corral.domain.diagnosis import GAP, RankEnd
from corral.domain.failure_class import FAILURES, FailureKind
from corral.domain.ids import NodeId
from corral.health.gang_failure import failure_of

N = NodeId("n1")
K = FailureKind


def end(
    rank: int = 0,
    tail: str = "",
    *,
    code: int | None = None,
    signal: int | None = None,
    at: float = 1.0,
    oom: bool = False,
) -> RankEnd:
    if code is None and signal is None:
        code = 1
    exit = Exit(code=code, signal=signal, at=at, out_of_memory=oom)
    return RankEnd(rank=rank, node=N, exit=exit, tail=tail)


def raised(error: str, before: str = "step 10 loss 2.1\n") -> str:
    frames = (
        'Traceback (most recent call last):\n  File "t.py", line 3, in f\n    g()\n'
    )
    return f"{before}{frames}{error}\n"


ONE_RANK = [
    (raised("ValueError: bad shape"), K.PROGRAM),
    (raised("ModuleNotFoundError: No module named 'flash_attn'"), K.MODULE),
    (raised("ImportError: libcudnn.so.9: cannot open shared object file"), K.LIBRARY),
    ('  File "t.py", line 3\n    def (\nSyntaxError: invalid syntax\n', K.SYNTAX),
    ("usage: t.py [-h]\nt.py: error: unrecognized arguments: --bogus\n", K.USAGE),
    ("/bin/sh: 1: pyhton: not found\n", K.COMMAND),
    (
        raised("FileNotFoundError: [Errno 2] No such file or directory: 'x.json'"),
        K.FILES,
    ),
    (
        "python: can't open file '/w/t.py': [Errno 2] No such file or directory\n",
        K.FILES,
    ),
    (raised("PermissionError: [Errno 13] Permission denied: '/data'"), K.PERMISSION),
    (
        raised(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        ),
        K.GPU_MEMORY,
    ),
    (raised("RuntimeError: HIP out of memory. Tried to allocate 20 MiB"), K.GPU_MEMORY),
    (
        raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        K.GPU_FAULT,
    ),
    (
        raised("RuntimeError: CUDA error: an illegal memory access was encountered"),
        K.GPU_PROGRAM,
    ),
    (raised("RuntimeError: CUDA error: device-side assert triggered"), K.GPU_PROGRAM),
    (raised("RuntimeError: No CUDA GPUs are available"), K.GPU_MISSING),
    (raised("AssertionError: Torch not compiled with CUDA enabled"), K.GPU_MISSING),
    (raised("OSError: [Errno 28] No space left on device"), K.DISK_FULL),
    (raised("OSError: [Errno 122] Disk quota exceeded"), K.QUOTA),
    (raised("OSError: [Errno 116] Stale file handle"), K.STORAGE),
    (raised("OSError: [Errno 5] Input/output error: '/data/x'"), K.STORAGE),
    (raised("OSError: [Errno 30] Read-only file system: '/out'"), K.STORAGE),
    (raised("MemoryError"), K.HOST_MEMORY),
    (raised("OSError: [Errno 24] Too many open files: 'x'"), K.LIMITS),
    (raised("RuntimeError: can't start new thread"), K.LIMITS),
    (raised("RecursionError: maximum recursion depth exceeded"), K.PROGRAM),
    (raised("OSError: [Errno 98] Address already in use"), K.PORT),
    (
        raised("socket.gaierror: [Errno -3] Temporary failure in name resolution"),
        K.DNS,
    ),
    (raised("requests.exceptions.ConnectionError: Max retries exceeded"), K.NETWORK),
    (raised("ConnectionRefusedError: [Errno 111] Connection refused"), K.NETWORK),
    (raised("huggingface_hub.errors.GatedRepoError: 401 Client Error."), K.ACCESS),
    (raised("json.decoder.JSONDecodeError: Expecting value: line 1"), K.DATA),
    (raised("_pickle.UnpicklingError: invalid load key, 'v'."), K.CHECKPOINT),
    (
        raised("RuntimeError: PytorchStreamReader failed reading zip archive"),
        K.CHECKPOINT,
    ),
    (raised("RuntimeError: Error(s) in loading state_dict for GPT:"), K.CHECKPOINT),
    (
        raised("safetensors_rust.SafetensorError: Error while deserializing header"),
        K.CHECKPOINT,
    ),
    (raised("FloatingPointError: loss is nan at step 12"), K.NUMERIC),
    (
        raised("RuntimeError: probability tensor contains either `inf`, `nan`"),
        K.NUMERIC,
    ),
    (raised("KeyboardInterrupt"), K.INTERRUPTED),
    ("something\n", K.UNKNOWN),
    ("", K.UNKNOWN),
]


UNJOINED = "terminate called without an active exception\n"


@pytest.mark.parametrize(("tail", "kind"), ONE_RANK)
def test_the_words_of_one_rank(tail: str, kind: FailureKind) -> None:
    failure = failure_of([end(tail=tail)])
    assert failure is not None
    assert (failure.kind, failure.culprit) == (kind, "rank 0 on n1")


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ({"signal": 11}, K.CRASH),
        ({"signal": 6}, K.CRASH),
        ({"code": 139}, K.CRASH),
        ({"signal": 9}, K.KILLED),
        ({"code": 137}, K.KILLED),
        ({"signal": 15}, K.KILLED),
        ({"signal": 9, "oom": True}, K.HOST_MEMORY),
        ({"signal": 2}, K.INTERRUPTED),
        ({"signal": 25}, K.LIMITS),
        ({"code": 127}, K.COMMAND),
        ({"code": 247}, K.KILLED),
        ({"code": 245}, K.CRASH),
        ({"code": 124}, K.KILLED),
        ({"code": 254}, K.UNKNOWN),
        ({"code": 3}, K.UNKNOWN),
    ],
)
def test_ends_without_words(how: dict[str, int], kind: FailureKind) -> None:
    failure = failure_of([end(**how)])  # type: ignore[arg-type]
    assert failure is not None
    assert failure.kind == kind


def test_what_was_warned_of_before_is_not_what_it_failed_of() -> None:
    noise = "warning: Connection reset by peer, trying again\nNo such file or directory: cache\n"
    failure = failure_of([end(tail=raised("KeyError: 'tokens'", noise))])
    assert failure is not None
    assert (failure.kind, failure.quote) == (K.PROGRAM, "KeyError: 'tokens'")


def test_the_first_cause_of_a_chain_is_told() -> None:
    tail = raised("FileNotFoundError: [Errno 2] No such file or directory: 'a.bin'")
    tail += "\nDuring handling of the above exception, another exception occurred:\n\n"
    failure = failure_of(
        [end(tail=tail + raised("RuntimeError: the data set is not there", ""))]
    )
    assert failure is not None
    assert failure.kind == K.FILES


def test_a_full_shared_memory_is_told_where_the_error_says_little() -> None:
    tail = "ERROR: Unexpected bus error encountered in worker. insufficient shared memory (shm)\n"
    tail += raised("RuntimeError: DataLoader worker (pid(s) 77) exited unexpectedly")
    failure = failure_of([end(tail=tail)])
    assert failure is not None
    assert failure.kind == K.SHARED_MEMORY


LOST = raised("torch.distributed.DistBackendError: NCCL error: remote process exited")
WAITED = raised(
    "RuntimeError: [gloo] Timed out waiting 5000ms for recv operation to complete"
)


def test_who_lost_a_peer_is_not_to_blame_though_it_ended_first() -> None:
    ends = [
        end(0, LOST, at=1.0),
        end(1, raised("ValueError: bad batch"), at=1.5),
        end(2, LOST, at=1.1),
    ]
    failure = failure_of(ends)
    assert failure is not None
    assert (failure.kind, failure.rank) == (K.PROGRAM, 1)


def test_a_rank_that_was_killed_is_to_blame_and_not_those_who_lost_it() -> None:
    failure = failure_of(
        [end(0, LOST, at=1.2), end(1, signal=9, at=1.0), end(2, LOST, at=1.2)]
    )
    assert failure is not None
    assert (failure.kind, failure.rank) == (K.KILLED, 1)


@pytest.mark.parametrize("later", [{"signal": 15}, {"signal": 9}, {"code": 143}])
def test_who_does_not_come_to_a_collective_is_to_blame_when_the_others_give_up(
    later: dict[str, int],
) -> None:
    waits = RankEnd(rank=2, node=N, exit=None)
    for ends in (
        [end(0, WAITED), end(1, WAITED), waits],
        [end(0, WAITED), end(1, WAITED), end(2, at=3.0, **later)],  # type: ignore[arg-type]
    ):
        failure = failure_of(ends)
        assert failure is not None
        assert (failure.kind, failure.rank) == (K.HANG, 2)


def test_where_all_have_lost_all_the_first_is_told() -> None:
    failure = failure_of([end(1, LOST, at=1.0), end(0, LOST, at=2.0)])
    assert failure is not None
    assert (failure.kind, failure.rank, failure.alike) == (K.PEER, 1, 2)


def test_an_abort_of_a_watchdog_is_the_timeout_that_it_tells() -> None:
    tail = (
        "[rank0]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)\n"
    )
    tail += "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    ends = [end(0, tail, signal=6), RankEnd(rank=1, node=N, exit=None)]
    failure = failure_of(ends)
    assert failure is not None
    assert (failure.kind, failure.rank) == (K.HANG, 1)


@pytest.mark.parametrize(
    ("before", "kind", "quote"),
    [
        (raised("ValueError: bad batch"), K.PROGRAM, "ValueError: bad batch"),
        ("step 7\n", K.CRASH, "terminate called without an active exception"),
        (raised("ValueError: skipped") + "step\n" * 20, K.CRASH, UNJOINED.strip()),
    ],
)
def test_an_error_comes_before_the_abort_of_a_thread_that_it_left_behind(
    before: str, kind: K, quote: str
) -> None:
    failure = failure_of([end(0, before + UNJOINED, signal=6)])
    assert failure is not None
    assert (failure.kind, failure.quote) == (kind, quote)


THROWN = (
    "terminate called after throwing an instance of 'std::system_error'\n  what():  no "
    "thread\n"
)


@pytest.mark.parametrize("signal", [6, 11])
@pytest.mark.parametrize("after", ["", THROWN, UNJOINED])
def test_an_error_of_python_comes_before_a_crash_while_it_shuts_down(
    after: str, signal: int
) -> None:
    failure = failure_of([end(0, raised("ValueError: refused") + after, signal=signal)])
    assert failure is not None
    assert (failure.kind, failure.quote) == (K.PROGRAM, "ValueError: refused")


def test_the_place_of_an_error_is_the_newest_frame_of_the_program() -> None:
    tail = (
        'Traceback (most recent call last):\n  File "/work/train.py", line 31, in main\n    f()\n'
        '  File "/venv/lib/python3.11/site-packages/torch/nn.py", line 9, in f\n    g()\n'
        "RuntimeError: bad\n"
    )
    failure = failure_of([end(0, tail)])
    assert failure is not None
    place = "/work/train.py:31 (by torch/nn.py:9 in f)"
    assert (failure.place, failure.next) == (
        place,
        f"look at {place}, and read the end of the log",
    )


THREAD = "Exception in thread Thread-3 (_monitor):\n"


def test_a_thread_that_ends_after_the_error_of_the_program_is_not_the_cause() -> None:
    late = THREAD + raised("BrokenPipeError: [Errno 32] Broken pipe", "")
    failure = failure_of([end(0, raised("RuntimeError: mat1 and mat2 differ") + late)])
    assert failure is not None
    assert (failure.kind, failure.quote) == (
        K.PROGRAM,
        "RuntimeError: mat1 and mat2 differ",
    )
    first = THREAD + raised("torch.OutOfMemoryError: CUDA out of memory.", "")
    failure = failure_of(
        [end(0, first + raised("RuntimeError: the worker is gone", ""))]
    )
    assert failure is not None
    assert failure.kind == K.GPU_MEMORY


def test_a_traceback_in_a_string_of_json_is_read() -> None:
    frames = 'Traceback (most recent call last):\\n  File \\"t.py\\", line 3, in f\\n    g()\\n'
    row = f'{{"event": "failed", "exception": "{frames}ValueError: bad", "level": "error"}}\n'
    failure = failure_of([end(0, "step 3\n" + row)])
    assert failure is not None
    assert (failure.quote, failure.place) == ("ValueError: bad", "t.py:3")


def test_the_place_of_an_error_is_below_the_work_folder_of_its_attempt() -> None:
    file = "/var/lib/corral/attempts/j3.1/work/pkg/t.py"
    failure = failure_of([end(0, raised_in(file, "f", "ValueError: bad"))])
    assert failure is not None
    assert failure.place == "pkg/t.py:3"


@pytest.mark.parametrize(
    ("near", "code", "quote"),
    [
        ("sent 3 of 9\n", 1, "ValueError: far"),
        (
            "bash: line 3: foo: command not found\n",
            127,
            "bash: line 3: foo: command not found",
        ),
        (raised("KeyError: 'near'"), 1, "KeyError: 'near'"),
        (
            "INFO upload failed: Connection reset by peer, retrying\n",
            1,
            "ValueError: far",
        ),
    ],
)
def test_the_last_error_of_a_long_log_counts_where_its_end_tells_nothing(
    near: str, code: int, quote: str
) -> None:
    failure = failure_of([end(0, raised("ValueError: far") + GAP + near, code=code)])
    assert failure is not None
    assert failure.quote == quote


def test_a_signal_is_not_explained_by_an_error_far_from_the_end() -> None:
    failure = failure_of(
        [end(0, raised("ValueError: far") + GAP + "step 7\n", signal=11)]
    )
    assert failure is not None
    assert (failure.kind, failure.quote) == (K.CRASH, "")


def test_of_torchrun_the_worker_is_told_that_failed_first() -> None:
    tail = raised("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:")
    tail += (
        "t.py FAILED\nRoot Cause (first observed failure):\n[0]:\n  time : 2026\n  host : n1\n"
        "  rank : 5 (local_rank: 1)\n  exitcode : -9 (pid: 77)\n"
    )
    failure = failure_of([end(0, tail)])
    assert failure is not None
    assert (failure.kind, failure.rank) == (K.KILLED, 5)


def test_ends_that_are_clean_are_no_failure() -> None:
    assert failure_of([end(code=0), RankEnd(rank=1, node=N, exit=None)]) is None


def test_a_quote_is_one_short_line_that_no_terminal_acts_on() -> None:
    bad = raised("ValueError: \x1b[31mred\x1b[0m\x07" + "x" * 900)
    failure = failure_of([end(tail=bad)])
    assert failure is not None
    assert failure.quote.startswith("ValueError: red")
    assert failure.quote.isprintable()
    assert len(failure.quote) <= 300


def test_every_class_has_words_and_something_to_do() -> None:
    assert set(FAILURES) == set(FailureKind)
    assert all(one.text and one.next for one in FAILURES.values())


def raised_in(file: str, function: str, error: str) -> str:
    frame = f'  File "{file}", line 3, in {function}\n    x()\n'
    return f"Traceback (most recent call last):\n{frame}{error}\n"


TORCH = "/venv/lib/python3.11/site-packages/torch/serialization.py"


@pytest.mark.parametrize(
    ("file", "function", "error", "kind"),
    [
        (TORCH, "__init__", "OSError: [Errno 22] Invalid argument", K.CHECKPOINT),
        (TORCH, "_save", "RuntimeError: basic_ios::clear", K.PROGRAM),
        (TORCH, "save_file", "RuntimeError: shared", K.PROGRAM),
        ("/usr/lib/python3.11/gzip.py", "_read", "ValueError: strange", K.DATA),
        (
            "/usr/lib/python3.11/json/encoder.py",
            "default",
            "ValueError: strange",
            K.PROGRAM,
        ),
        ("/w/gzip_tools.py", "read", "ValueError: strange", K.PROGRAM),
        ("/usr/lib/python3.11/zipfile.py", "open", "KeyError: 'model'", K.PROGRAM),
    ],
)
def test_an_error_of_a_reader_is_of_what_it_read(
    file: str, function: str, error: str, kind: K
) -> None:
    found = failure_of([end(0, raised_in(file, function, error))])
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (raised("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."), K.KILLED),
        (raised("RuntimeError: worker Process-1 failed with exit code -11"), K.CRASH),
        (raised("ProcessExitedException: process 1 terminated with signal SIGSEGV"), K.CRASH),
        (raised("BrokenProcessPool: A process in the pool was terminated abruptly"), K.KILLED),
        ("make: *** [Makefile:3: all] Killed\n", K.KILLED),
        ("make: *** [Makefile:3: all] Error 1\n", K.PROGRAM),
        ("xargs: sh: terminated by signal 9\n", K.KILLED),
        (raised("ValueError: bad", "worker 3 was killed by signal: Killed\n"), K.PROGRAM),
    ],
)  # fmt: skip
def test_how_a_child_ended_is_how_it_ended(tail: str, kind: K) -> None:
    found = failure_of([end(0, tail)])
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    ("signal", "kind"),
    [
        (1, K.INTERRUPTED),
        (3, K.INTERRUPTED),
        (10, K.KILLED),
        (14, K.KILLED),
        (31, K.CRASH),
    ],
)
def test_each_signal_that_ends_a_program_is_a_cause(signal: int, kind: K) -> None:
    found = failure_of([end(0, "step 3\n", signal=signal)])
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    ("signal", "rank", "kind"), [(9, 1, K.HANG), (15, 0, K.NETWORK)]
)
def test_who_did_not_even_leave_when_told_to_is_whom_the_others_waited_for(
    signal: int, rank: int, kind: K
) -> None:
    waited = end(0, raised("TimeoutError: timed out"), at=1.0)
    found = failure_of([waited, end(1, "step 7\n", signal=signal, at=2.1)])
    assert found is not None
    assert (found.kind, found.rank) == (kind, rank)


def test_whose_line_was_cut_while_the_other_ran_on_waited_for_nobody() -> None:
    cut = end(
        0, raised("ConnectionResetError: [Errno 104] Connection reset by peer"), at=1.0
    )
    found = failure_of([cut, end(1, "step 7\n", signal=15, at=1.1)])
    assert found is not None
    assert found.kind == K.PEER


def test_what_other_workers_say_of_their_peer_is_not_how_it_ended() -> None:
    tail = (
        "RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-23_12:00:00\n"
        "  rank      : 1 (local_rank: 1)\n  exitcode  : -6 (pid: 7)\n"
    )
    found = failure_of([end(0, tail)])
    assert found is not None
    assert (found.kind, found.rank) == (K.CRASH, 1)
