"""Every command: where it is, what it does in a line, and under which heading help shows it."""

from dataclasses import dataclass
from typing import Final

CLUSTER: Final = "Cluster"
JOBS: Final = "Jobs"
MORE: Final = "More"

RUN: Final = (
    "Run a command as a job and follow it to its end.\n\n"
    "One word after -- is a line for the shell; several are a command and its arguments, as typed. "
    "Without a head, one is started here. Ctrl-C leaves the job running."
)

APPLY: Final = """Submit the jobs of a spec file (YAML or TOML).

A batch script of Slurm's is taken, too.

A YAML file may hold several jobs: documents divided by a line of ---.
They are submitted all or none, and may name one another in `after`:

    name: prepare
    workdir: .
    run: ./prepare.sh
    ---
    name: train
    workdir: .
    after: prepare
    run: ./train.sh
"""

PRICES: Final = """What GPUs cost by the hour, and to buy.

A list of one's own, for --prices FILE, is a CSV file of a price a line:

    subject,quantity,value,unit,source,date
    aws:h100-sxm,on_demand,3.10,USD a GPU-hour,our contract,2026-10-01
    buy:h100-sxm,server,290000,USD,an offer for a node of 8,2026-10-01

CLOUD:GPU is rented on_demand, reserved_1y, reserved_3y or spot.
Of buy:GPU a gpu, a server (with all of its GPUs) or a used_gpu is sold.
What the list does not say, the catalog does, which --csv prints to begin with.
"""


ALERTS: Final = """Show what somebody should know of, and try whom messages reach.

Whom to tell stands in alerts.yaml in the cluster's directory (~/.corral); the head reads it anew
when it has changed:

    kind: alerts
    to:
      - name: team
        slack: https://hooks.slack.com/services/...
        quiet: {from: "22:00", until: "07:00", zone: Europe/Berlin}
      - name: pager
        webhook: https://pager.example.org/corral
        secret_file: pager.secret
        least: critical
      - name: mail
        of: [job_failed, job_stuck]
        email: {to: [ops@example.org], from: corral@example.org, host: smtp.example.org}
        # also port: 587, security: starttls (or tls, or none), user: NAME, password_file: FILE
    rules: {job_stuck: 30m, node_down: 1m, queue_starved: 1d, budget_low: 10%, disk_full: 5%}

These rules hold by themselves; each may be off, as may job_failed, loss_nan and
node_kept_back. Quiet hours let through what is critical: nodes that are down and disks that are
full.
"""

PREDICT: Final = """Predict each row of a table.

A table is CSV with a header, and has these columns at least, by its kind:

    training: model, gpu, n_gpus, seq_len
    memory_ci: family, gpu, layers, hidden, heads, seq_len, micro_batch, global_batch
    inference: model, gpu, n_gpus, batch_or_concurrency, input_len, output_len
    collectives: collective, gpu, n_gpus, size_bytes

Others are read where they are there: layers, dp, tp, pp, precision, engine, interconnect, ...
Of an empty cell the answer says what was assumed.

For example: corral plan predict runs.csv --kind training --out predicted.csv
"""

CAPACITY: Final = """How many GPUs will be needed.

Of runs that are known, or of a history: then a forecast of the demand with its intervals, and with
--wait the fewest GPUs on which so many jobs wait no longer, found by replaying the history.

For example: corral plan capacity --run-hours 20 --runs 30 --run-gpus 16
Or: corral plan capacity --history jobs.csv --wait 30m
"""

VALIDATE: Final = """Hold predictions against measurements.

A table is one of plan predict with what was measured, in one of these columns, by its kind:

    training: step_time_s, tokens_per_s_per_gpu, memory_gb_per_gpu
    memory_ci: mem_max_allocated_gb, iter_time_s_median
    inference: output_tokens_per_s_total, ttft_ms, tpot_ms, latency_ms
    collectives: time_us

For example: corral plan validate training runs.csv
"""


def _like(what: str, example: str) -> str:
    return f"{what}\n\nFor example: corral plan {example}"


GROUPS: Final = {
    "queue": "List queues, and set what they may have; alone, it lists jobs as ps does.",
    "import": "Learn from the history of another system, and replay it.",
    "plan": """Say what fits, how fast it is, what to build, buy or rent, and how often it breaks.

Numbers may be written 8192, 1e6, 70B or 15T: K, M, B and T are thousands to trillions.
""",
    "report": "Say who held GPUs, what came of it, what was wasted and what it cost.",
    "node": "List nodes, let others join, and take them out of work or back in.",
    "doctor": """Put nodes to the proof: their GPUs, what joins them, and where data is read.

Alone, it looks at this machine and the whole cluster, and says what to do.
""",
    "alert": ALERTS,
    "secret": "Keep secrets for jobs; they are never shown again.",
    "user": "Say who may do what.",
    "token": "Make, list and revoke what lets people and programs in.",
    "key": "Change the cluster's key, and make keys for backups.",
    "service": "Let systemd keep the head, or a node's agent, running.",
    "completion": "Let the shell complete commands.",
}


@dataclass(frozen=True, slots=True)
class Command:
    """`name` has its group before it; `target` is module:function within corral.cli."""

    name: str
    target: str
    help: str
    heading: str = JOBS
    alias: str | None = None
    show: bool = True


COMMANDS: Final = (
    Command("up", "cluster:up", "Start a cluster on this machine.", CLUSTER),
    Command("down", "cluster:down", "Stop the head and its agents.", CLUSTER),
    Command("join", "joining:join", "Let this machine be a node of a cluster elsewhere.", CLUSTER),
    Command("leave", "joining:leave", "Let this machine be a node no more.", CLUSTER),
    Command("status", "cluster:status", "Show the head, the nodes and what they hold.", CLUSTER),
    Command("top", "top.command:top", "Show nodes, GPUs and jobs, live.", CLUSTER),
    Command("ui", "open_pages:ui", "Print a link that opens the pages in a browser.", CLUSTER),
    Command("login", "login:login", "Log in at a head by its OpenID Connect provider.", CLUSTER),
    Command("logout", "login:logout", "End the token of a log-in, and remove it here.", CLUSTER),
    Command("run", "submit:run", RUN),
    Command("apply", "submit:apply", APPLY),
    Command("ps", "ps:ps", "List jobs, newest first."),
    Command("show", "jobs:show", "Show one job: attempts, receipts, checkpoints."),
    Command("why", "jobs:why", "Say why a job is where it is, and what would change it."),
    Command("logs", "logs:logs", "Print what the ranks printed."),
    Command("outputs", "outputs:outputs", "List the files that a job wrote."),
    Command("cp", "outputs:cp", "Copy what a job wrote to this machine."),
    Command("attach", "attach:attach", "Open a shell beside a rank, or its standard input."),
    Command("stop", "jobs:stop", "Cancel jobs, or send them a signal.", alias="cancel"),
    Command("suspend", "jobs:suspend", "Save, stop and keep jobs for later."),
    Command("resume", "jobs:resume", "Let suspended or held jobs go on."),
    Command("events", "events:events", "Show what happened, to one job or to all."),
    Command("metrics", "metrics:metrics", "Show the curves of a job, or of a node."),
    Command("checkpoints", "checkpoints:checkpoints", "List the saves of a job."),
    Command("queue ls", "queues:ls", "List the queues and what they use."),
    Command("queue show", "queues:show", "Show one queue, and who uses it."),
    Command("queue set", "queues:put", "Make a queue, or change one."),
    Command("queue rm", "queues:rm", "Take a queue away.", alias="remove"),
    Command("simulate", "simulate:simulate", "Replay a log of jobs under one policy or several."),
    Command(
        "plan model",
        "planner.model:model",
        _like("Does a model fit, and in how many GPUs.", "model llama-3.1-70b --gpu h200"),
    ),
    Command(
        "plan train",
        "planner.train:train",
        _like(
            "How a run is best laid out, and how long it is.",
            "train llama-3.1-70b --gpus 512 --gpu h100 --tokens 1e12",
        ),
    ),
    Command(
        "plan serve",
        "planner.serve:serve",
        _like(
            "Which GPUs serve a model within its targets.",
            "serve llama-3.1-8b --qps 20 --input 1000 --output 200 --ttft-p90 500",
        ),
    ),
    Command(
        "plan cluster",
        "planner.cluster:cluster",
        _like("What a cluster is built of.", "cluster --gpus 1024 --gpu h100 --fabric ib-ndr"),
    ),
    Command(
        "plan cost",
        "planner.cost:cost",
        _like(
            "Own or rent: what each costs.",
            "cost --gpus 16 --utilisation 0.6 --assume pue=1.2 kwh=0.08",
        ),
    ),
    Command("plan capacity", "planner.capacity:capacity", CAPACITY),
    Command(
        "plan reliability",
        "planner.reliability:reliability",
        _like(
            "How often it will fail.",
            "reliability llama-3.1-405b --gpus 16384 --gpu h100 --days 54",
        ),
    ),
    Command("plan predict", "planner.predict:predict", PREDICT),
    Command("plan validate", "planner.predict:validate", VALIDATE),
    Command("plan prices", "planner.prices:prices", PRICES),
    Command(
        "plan catalog",
        "planner.catalog:catalog",
        _like("Show the numbers that plans are made of.", "catalog gpus h100"),
    ),
    Command("report usage", "report:usage", "Who held GPUs, and how busy these were."),
    Command("report waste", "report:waste", "Which GPU-hours brought nothing, and why."),
    Command("report cost", "report:cost", "What GPU-hours and energy cost, and what was wasted."),
    Command("report goodput", "report:goodput", "Which part of what was held brought steps."),
    Command("import sacct", "imports:sacct", "Keep jobs that Slurm ran, to learn from."),
    Command("import kueue", "imports:kueue", "Keep jobs that Kueue ran, to learn from."),
    Command("node ls", "nodes:ls", "List the nodes."),
    Command("node show", "nodes:show", "Show one node and its GPUs."),
    Command("node cordon", "nodes:cordon", "Give a node no new work."),
    Command("node drain", "nodes:drain", "Give a node no new work, and move what runs there."),
    Command("node uncordon", "nodes:uncordon", "Give a node work again."),
    Command("node clear", "nodes:clear", "Say that what ails a node is mended."),
    Command("node token", "joining:create_token", "Print a line that lets a machine join."),
    Command("node rm", "joining:rm", "Remove a node that has joined.", alias="remove"),
    Command("node dead", "joining:dead", "Say that a silent node is dead."),
    Command("node label", "nodes:label", "Set labels of a node, and take them away."),
    Command(
        "doctor look",
        "doctor_checks:look",
        "Look at this machine and the cluster; nothing is changed.",
    ),
    Command("doctor gpu", "doctor:gpu", "Check GPUs, memory, disk and clock of idle nodes."),
    Command("doctor net", "doctor:net", "Check the links between idle nodes."),
    Command("doctor data", "doctor:data", "Measure how nodes read a folder."),
    Command("alert ls", "alerts:ls", "List what stands now, and who is told of it."),
    Command("alert test", "alerts:try_out", "Send a message to each receiver."),
    Command("secret set", "secrets:put", "Set a secret from standard input or a prompt."),
    Command("secret ls", "secrets:ls", "List the names of secrets."),
    Command("secret rm", "secrets:rm", "Remove a secret."),
    Command("user add", "users:add", "Let somebody own jobs."),
    Command("user ls", "users:ls", "List the users.", alias="list"),
    Command("user show", "users:show", "Show one user and their tokens."),
    Command("user set", "users:put", "Change a user's role, or whether they are let in."),
    Command("user link", "log_ins:link", "Let one identity at the provider log in as a user."),
    Command("user unlink", "log_ins:unlink", "Let no identity at the provider log in as a user."),
    Command("user pending", "log_ins:pending", "List refused log-ins that wait for a link."),
    Command("user rm", "users:rm", "Forget a user and revoke their tokens.", alias="remove"),
    Command("token create", "users:create_token", "Make a token and print it, this once."),
    Command("token ls", "users:ls_tokens", "List tokens, of people and of nodes.", alias="list"),
    Command("token revoke", "users:revoke_token", "Take tokens back, at once."),
    Command("key rotate", "keys:rotate", "Seal all secrets with a fresh key."),
    Command("key generate", "keys:generate", "Make a pair of keys for sealed backups."),
    Command("backup", "backup:backup", "Write the whole cluster into one file.", CLUSTER),
    Command("restore", "backup:restore", "Make the cluster of a backup in a directory.", CLUSTER),
    Command(
        "slurm-shims",
        "slurm.install:install",
        "Install Slurm's commands, spoken to this cluster.",
        CLUSTER,
    ),
    Command("service install", "systemd_units:install", "Let systemd keep it running."),
    Command("service remove", "systemd_units:remove", "Take the unit away; what runs, runs on."),
    Command("audit", "audit:audit", "Show who asked for what, newest last.", CLUSTER),
    Command("completion install", "completion:install", "Install shell completion."),
    Command("completion show", "completion:show", "Print the completion script of a shell."),
    Command(
        "--install-completion", "completion:install", "Install shell completion.", MORE, show=False
    ),
)
