"""corral simulate answers with the numbers, side by side, and writes what it is told to
write."""

import json
from gzip import compress
from pathlib import Path

import pytest

from corral.cli.main import run

LOG = "job_id,submit_s,duration_s,gpus\n" + "".join(
    f"j{at},{at * 50},{10_000 if at % 5 == 0 else 100},{1 + at % 8}\n"
    for at in range(60)
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def test_several_policies_side_by_side(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events, html = tmp_path / "events", tmp_path / "page.html"
    words = [
        "simulate",
        str(log),
        "--cluster",
        "2x8",
        "--json",
        "--policy",
        "fifo",
        "default",
    ]
    assert run([*words, "--events", str(events), "--html", str(html)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["nodes"], answer["gpus"]) == (2, 16)
    assert set(answer["policies"]) == {"fifo", "default"}
    for numbers in answer["policies"].values():
        assert numbers["jobs"] == 60
        assert numbers["wall_s"] >= 0
        assert 0 < numbers["utilisation"] <= 1
    logged = [json.loads(line) for line in events.read_text().splitlines()]
    assert {event["policy"] for event in logged} == {"fifo", "default"}
    assert {event["job"] for event in logged} == {f"j{at}" for at in range(60)}
    assert html.read_text().count("<svg") == 2
    assert "http" not in html.read_text().replace(str(tmp_path), "")


KEYS = {
    *(
        "jobs",
        "jct_mean_s",
        "jct_p50_s",
        "jct_p99_s",
        "wait_mean_s",
        "wait_p99_s",
        "wait_max_s",
    ),
    *("slowdown_mean", "utilisation", "preemptions", "lost_gpu_s", "wall_s"),
}


def test_the_same_seed_gives_the_same_answer_to_the_last_digit(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "simulate",
        str(log),
        "--cluster",
        "2x8",
        "--json",
        "--mtbf-hours",
        "2",
        "--seed",
    ]
    said = []
    for seed in ("5", "5", "6"):
        assert run([*words, seed]) == 0
        numbers = json.loads(capsys.readouterr().out)["policies"]["default"]
        assert numbers.keys() >= KEYS
        assert numbers.pop("wall_s") >= 0
        said.append(numbers)
    assert said[0] == said[1] != said[2]
    assert said[0]["failures"] > 0


def test_numbers_by_queue_and_by_size_add_up(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", str(log), "--cluster", "2x8", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)["policies"]["default"]
    for kind in ("queues", "sizes"):
        parts = numbers[kind].values()
        assert sum(part["jobs"] for part in parts) == 60
        mean = sum(part["wait_mean_s"] * part["jobs"] for part in parts) / 60
        assert mean == pytest.approx(numbers["wait_mean_s"])
        assert max(part["wait_max_s"] for part in parts) == numbers["wait_max_s"]
    assert run(["simulate", str(log), "--cluster", "2x8", "--by"]) == 0
    said = capsys.readouterr()
    assert "5 to 8" in said.out
    legend = "jct: mean time from the submission to the end of a job; wait: jct without"
    assert legend in said.err
    assert "split: share that was idle on partly used nodes" in said.err


def test_jobs_that_the_nodes_cannot_hold_are_left_out_and_told(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", str(log), "--cluster", "3x4+1x2", "--json"]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert (answer["too_large"], answer["policies"]["default"]["jobs"]) == (0, 60)
    assert run(["simulate", str(log), "--cluster", "1x4", "--json"]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert answer["too_large"] == 60 - answer["policies"]["default"]["jobs"] == 28
    assert "not replayed: 28 jobs too large for the nodes, where a job can" in said.err


def test_without_a_policy_it_is_the_default_on_the_nodes_beside_the_log(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.with_name("log.nodes.csv").write_text("node_id,gpus\na,8\nb,4\n")
    assert run(["simulate", str(log), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (list(answer["policies"]), answer["gpus"]) == (["default"], 12)


def test_a_policy_of_ones_own(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = log.with_name("mine.toml")
    config.write_text('[dear]\nlike = "default"\nprice = 50.0\n')
    assert (
        run(
            [
                "simulate",
                str(log),
                "--cluster",
                "2x8",
                "--config",
                str(config),
                "--json",
            ]
        )
        == 0
    )
    assert list(json.loads(capsys.readouterr().out)["policies"]) == ["dear"]


@pytest.mark.parametrize(
    "text",
    [
        "price = 2.0",
        '[a]\nlike = "magic"',
        "[a]\nhurry = 1.0",
        '[a]\nprice = "much"',
        "[a]\nrule = 4",
        "[a",
    ],
)
def test_what_is_no_file_of_policies_is_refused(
    log: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = log.with_name("mine.toml")
    config.write_text(text)
    assert run(["simulate", str(log), "--cluster", "2x8", "--config", str(config)]) == 3
    assert "is not a file of policies" in capsys.readouterr().err


def test_jobs_none_of_which_fits_are_refused(log: Path) -> None:
    log.write_text("submit_s,duration_s,gpus\n0,5,8\n")
    assert run(["simulate", str(log), "--cluster", "1x4"]) == 3


ODD_LOGS = {
    "": "has no job with GPUs that ended",
    "a,0,1e300,1": "give times in seconds",
    "a,1e18,5,1": "give times in seconds",
    "a,0,5,0": "has no job with GPUs that ended",
    "a,0,nan,1": "line 2",
    "a,0,5,1e12": "no job fits",
}


@pytest.mark.parametrize("row", ODD_LOGS)
@pytest.mark.parametrize("words", [[], ["--queue-per-vc"]])
def test_a_log_that_tells_nothing_or_nonsense_is_refused(
    row: str, words: list[str], log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(f"job_id,submit_s,duration_s,gpus,vc\n{row}{',a' if row else ''}\n")
    assert run(["simulate", str(log), "--cluster", "2x8", *words]) == 3
    assert ODD_LOGS[row] in capsys.readouterr().err


def test_a_list_without_nodes_is_refused(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = log.with_name("none.csv")
    nodes.write_text("node_id,gpus\na,0\n")
    assert run(["simulate", str(log), "--nodes", str(nodes)]) == 3
    assert "has no node with GPUs" in capsys.readouterr().err


def test_rows_out_of_order_of_one_id_or_no_time_are_jobs_like_others(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text("job_id,submit_s,duration_s,gpus\na,50,10,1\nb,0,0,2\na,0,10,8\n")
    file = tmp_path / "queues.yaml"
    file.write_text("kind: queues\nqueues: [{name: a}]\n")
    words = [
        "simulate",
        str(log),
        "--cluster",
        "1x8",
        "--policy",
        "fifo",
        "--queues",
        str(file),
    ]
    assert run([*words, "--json"]) == 0
    for numbers in json.loads(capsys.readouterr().out)["policies"].values():
        assert (numbers["jobs"], numbers["wait_max_s"]) == (3, 1.0)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ([], 2),
        (["--cluster", "2x8", "--policy", "magic"], 3),
        (["--cluster", "eight"], 3),
        (["--cluster", "0x8"], 3),
        (["--cluster", "9999999x8"], 3),
        (["--cluster", "2x8", "--queues", "/no/such/file.yaml"], 3),
        (["--cluster", "1x4", "--restart-seconds", "-1"], 2),
        (["--cluster", "1x4", "--seed", "-1"], 2),
        (["--cluster", "2x8", "--mtbf-hours", "0.01", "--checkpoint-seconds", "0"], 3),
        (["--cluster", "1x4", "--html", "/no/such/folder/page.html"], 3),
        (["--cluster", "1x4", "--events", "/no/such/folder/events"], 3),
        (["--cluster", "2x8", "--nodes", "n.csv"], 2),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    log: Path, more: list[str], code: int
) -> None:
    assert run(["simulate", str(log), *more]) == code


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ["--policy", "magic"],
            "use one of: fifo, fifo-skip, sjf, sjf-oracle, srtf-oracle, las",
        ),
        (["--policy", "esy"], "did you mean easy? use one of: fifo"),
        (["--policy", "attained"], "run: corral simulate TRACE --queues FILE"),
        (
            ["--events", "/no/such/events"],
            "cannot be written: there is no directory /no/such",
        ),
        (
            ["--html", "/no/such/a.html"],
            "cannot be written: there is no directory /no/such",
        ),
        (["--html", "/tmp"], "/tmp cannot be written: it is a directory"),
    ],
)
def test_a_refusal_says_what_there_is_and_what_to_do(
    log: Path, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", str(log), "--cluster", "2x8", *more]) == 3
    told = capsys.readouterr()
    assert said in told.err
    assert "Errno" not in told.err


@pytest.mark.parametrize("cell", ["1e9", "nan", "inf", "-1", "2.5", "x"])
def test_no_node_of_a_list_has_such_gpus(
    log: Path, cell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = log.with_name("odd.csv")
    nodes.write_text(f"node_id,gpus\na,8\nb,{cell}\n")
    assert run(["simulate", str(log), "--nodes", str(nodes)]) == 3
    assert "odd.csv is not a list of nodes: line 3: " in capsys.readouterr().err


@pytest.mark.parametrize("cut", [slice(0, -12), slice(0, 15)])
def test_a_packed_log_that_is_cut_short_is_refused(
    log: Path, cut: slice, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = log.with_name("log.csv.gz")
    packed.write_bytes(compress(LOG.encode())[cut])
    assert run(["simulate", str(packed), "--cluster", "2x8"]) == 3
    assert "log.csv.gz cannot be read: Compressed file ended" in capsys.readouterr().err


def test_a_file_of_policies_that_is_not_there_is_refused_in_words(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", str(log), "--cluster", "2x8", "--config", "/no/such"]) == 3
    told = capsys.readouterr().err
    assert "/no/such cannot be read: no such file" in told
    assert "Errno" not in told


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_number_of_a_policy_has_an_end(
    log: Path, tmp_path: Path, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f'[dear]\nlike = "default"\nprice = {number}\n')
    assert run(["simulate", str(log), "--cluster", "2x8", "--config", str(file)]) == 3
    assert f"price is {number}" in capsys.readouterr().err


QUEUES = """
kind: queues
min_runtime: 30s
queues:
  - {name: a, gpus: 8, preempt: never}     # its own jobs leave each other alone
  - {name: b, gpus: 8}
"""


@pytest.fixture
def of_two(tmp_path: Path) -> Path:
    """One VC takes all there is, and then another comes for its own."""
    path = tmp_path / "two.csv"
    rows = [f"a{n},a,{n},5000,8\n" for n in range(4)] + [
        "b,b,1000,500,8\n",
        "c,-,1000,10,1\n",
    ]
    path.write_text("job_id,vc,submit_s,duration_s,gpus\n" + "".join(rows))
    return path


def test_queues_of_a_file_own_lend_and_take_back(
    of_two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, events = tmp_path / "queues.yaml", tmp_path / "events"
    file.write_text(QUEUES)
    words = [
        "simulate",
        str(of_two),
        "--cluster",
        "2x8",
        "--json",
        "--queues",
        str(file),
    ]
    assert run([*words, "--policy", "fifo-skip", "--events", str(events)]) == 0
    told = capsys.readouterr()
    assert (
        "the row queues is the live scheduler with these queues; fifo-skip: the same"
        in told.err
    )
    policies = json.loads(told.out)["policies"]
    assert set(policies) == {"fifo-skip", "queues"}
    assert policies["fifo-skip"]["queues"]["b"]["wait_mean_s"] > 0
    assert policies["queues"]["queues"]["b"]["wait_mean_s"] == 0
    assert policies["queues"]["preemptions"] == 1
    logged = [json.loads(line) for line in events.read_text().splitlines()]
    assert {event["policy"] for event in logged} == {"fifo-skip", "queues"}


def test_each_vc_of_a_log_may_be_a_queue_with_the_gpus_of_its_nodes(
    of_two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("node_id,gpus,vc\n1,8,b\n2,8,a\n")
    words = ["simulate", str(of_two), "--queue-per-vc", "--json"]
    assert run([*words, "--nodes", str(nodes)]) == 0
    own = json.loads(capsys.readouterr().out)["policies"]
    assert set(own) == {"queues"}
    assert own["queues"]["queues"]["b"]["wait_mean_s"] == 0
    assert run([*words, "--cluster", "2x8"]) == 0  # b has a tenth of the GPU time
    by_time = json.loads(capsys.readouterr().out)["policies"]["queues"]
    assert by_time["queues"]["b"]["wait_mean_s"] > 0


def test_jobs_that_their_queue_may_never_hold_are_left_out_and_told(
    of_two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(
        "kind: queues\nqueues: [{name: a, gpus: 4, borrow: 0}, {name: b}]\n"
    )
    words = [
        "simulate",
        str(of_two),
        "--cluster",
        "2x8",
        "--queues",
        str(file),
        "--json",
    ]
    assert run(words) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert (answer["too_large"], answer["policies"]["queues"]["jobs"]) == (4, 2)
    assert "not replayed: 4 jobs with more GPUs than the queue" in said.err
    file.write_text("kind: queues\nqueues: [{name: default, max_per_user: 0}]\n")
    assert run(words) == 3
    assert (
        "every job requests more GPUs than its queue may hold"
        in capsys.readouterr().err
    )


def test_what_a_play_of_queues_leaves_out_is_said(
    of_two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(
        "kind: queues\nqueues:\n"
        "- {name: a, max_duration: 1h, budget: {gpu_hours: 5, until: 2030-01-01}}\n"
    )
    assert (
        run(["simulate", str(of_two), "--cluster", "2x8", "--queues", str(file)]) == 0
    )
    said = capsys.readouterr().err
    assert "there is no queue b: its jobs are in the queue default" in said
    assert "the replay ignores the end of the budgets of the queues a" in said
    assert "the replay ignores the max_duration of the queues a" in said


@pytest.mark.parametrize(
    "words",
    [
        ["--queues", "none.yaml", "--queue-per-vc"],
        ["--queues", "none.yaml"],
    ],
)
def test_queues_that_cannot_be_are_refused(words: list[str], of_two: Path) -> None:
    assert run(["simulate", str(of_two), "--cluster", "2x8", *words]) in (2, 3)


def test_nodes_fail_where_there_are_queues_too(
    of_two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, events = tmp_path / "queues.yaml", tmp_path / "events"
    file.write_text(QUEUES)
    words = [
        "simulate",
        str(of_two),
        "--cluster",
        "2x8",
        "--json",
        "--queues",
        str(file),
    ]
    assert run([*words, "--mtbf-hours", "3", "--events", str(events)]) == 0
    numbers = json.loads(capsys.readouterr().out)["policies"]["queues"]
    logged = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert numbers["failures"] == logged.count("failed") > 0
    assert numbers["lost_gpu_s"] > 0


def test_a_log_without_a_vc_has_no_queue_for_each(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", str(log), "--cluster", "2x8", "--queue-per-vc"]) == 3
    said = capsys.readouterr().err
    assert "no job of this log has a vc" in said
    assert "--queues FILE" in said


@pytest.mark.parametrize("cold", [True, False])
def test_who_has_to_wait_for_a_compiler_is_told_so(
    cold: bool,
    log: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("corral.replay.compiles_first", lambda: cold)
    assert run(["simulate", str(log), "--cluster", "2x8", "--json"]) == 0
    told = capsys.readouterr()
    assert ("compiling once (about a minute)" in told.err) == cold
    assert json.loads(told.out)["nodes"] == 2
