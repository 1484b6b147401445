"""What the head asks of its process: files for its agents, and a heap that gives
back."""

import ctypes
import resource
import subprocess
import sys

import pytest

from corral.boot.process_limits import agents_in, files_for

HEAD = "import resource; from corral.boot.process_limits import *; "


def in_a_process(code: str, *, soft: int, hard: int) -> str:
    """What it prints, with these limits of open files."""
    limits = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); "
    words = [sys.executable, "-P", "-c", limits + HEAD + code]
    return subprocess.run(
        words, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_head_takes_all_the_files_that_it_may_have() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    code = "print(raise_files(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    assert in_a_process(code, soft=256, hard=most).split() == [str(most)] * 3


def test_a_thousand_agents_do_not_fit_into_a_shell_s_limit_and_the_head_says_so() -> (
    None
):
    assert agents_in(files_for(1000)) == 1000
    shown = "import logging, sys; to = {'format': '%(message)s %(fields)s', 'stream': sys.stdout}"
    code = f"{shown}; logging.basicConfig(**to); prepare(); print(too_few_files(413))"
    log, told = in_a_process(code, soft=512, hard=1024).splitlines()
    assert "few_files" in log
    assert "'agents': 412" in log
    assert told.startswith(
        "the head may open only 1024 files, enough for the agents of 412 nodes"
    )
    assert "the cluster has 413 nodes" in told
    assert in_a_process("print(too_few_files(412))", soft=512, hard=1024) == (
        "the head may open only 512 files, enough for the agents of 156 nodes, but the "
        "cluster has 412 nodes; raise this limit where the head is started: ulimit -Hn, or "
        "LimitNOFILE of its service"
    )
    silent = in_a_process(
        "raise_files(); print([too_few_files(412)])", soft=512, hard=1024
    )
    assert silent == "['']"


def test_what_was_large_for_a_moment_is_given_back_whatever_came_after_it() -> None:
    """A block of 10 MB, given back once, lets glibc cut the next ones out of its
    heap."""
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("this C library's allocator cannot be told")
    code = """
shape_heap()
from pathlib import Path
def held(): return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
before, kept = held(), []
for _ in range(20):
    large = bytes(10_000_000)
    kept.append(bytes(2_000))
    del large
    kept.append(bytearray(9_000_000)); kept.pop()
print(held() - before < 5_000_000)
"""
    words = [sys.executable, "-P", "-c", HEAD.replace("; ", "\n") + code]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "True"


def test_what_is_free_between_things_that_stay_is_given_back() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("this C library's allocator cannot be told")
    code = """
shape_heap()
from pathlib import Path
def held(): return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
kept, gone = [], []
for _ in range(1000):
    gone.append(b"x" * 20_000)
    kept.append(b"x" * 1_000)
del gone
before = held()
print(give_back(), before - held() > 12_000_000)
"""
    words = [sys.executable, "-P", "-c", HEAD.replace("; ", "\n") + code]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"]
