"""Examples at the end of each command's help."""

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "up": (
        "corral up --nodes 3 --gpus 2",
        "corral up --host 10.0.0.1",
        "corral up --engine slurm --set partition=gpu",
    ),
    "down": ("corral down", "corral down --leave"),
    "join": (
        "corral join https://10.0.0.1:8470 --token corral_join_... --fingerprint sha256:...",
        "corral join",
    ),
    "leave": ("corral leave", "corral leave --force"),
    "status": ("corral status", "corral status --json"),
    "top": ("corral top", "corral top --once"),
    "ui": ("corral ui", "corral ui --open"),
    "login": ("corral login --oidc https://head.example.org:8470",),
    "logout": ("corral logout",),
    "run": (
        "corral run -- python train.py",
        "corral run -n big --nodes 2 --gpus 8 --per gpu --time 4h -- python train.py",
        "corral run -d --array 0-9%4 -- './sweep.sh $CORRAL_ARRAY_INDEX'",
    ),
    "apply": (
        "corral apply -f job.yaml",
        "corral apply -f jobs.yaml --follow",
        "corral apply -f chat.yaml --dry-run",
    ),
    "serve": (
        "corral serve chat --model hf://org/name --engine vllm --gpus 1 --replicas 1..4",
        "corral serve tiny --model tiny --run ./server.sh --workdir .",
        "corral serve chat --model hf://org/name --engine vllm --gpus h100:2 --dry-run",
    ),
    "ps": (
        "corral ps",
        "corral ps --all --user ann",
        "corral ps --state failed --since 2h",
    ),
    "show": ("corral show train", "corral show j17 --json"),
    "why": ("corral why train", "corral why j17"),
    "logs": (
        "corral logs -f train",
        "corral logs train --rank 3 --tail 50",
        "corral logs train --search error",
    ),
    "debug stacks": (
        "corral debug stacks train",
        "corral debug stacks train --rank 3 --all",
        "corral debug stacks train --json > stacks.json",
    ),
    "model ls": ("corral model ls", "corral model ls --json"),
    "model pull": (
        "corral model pull hf://Qwen/Qwen3-8B --all --pin",
        "corral model pull hf://Qwen/Qwen3-8B --node n1 --secret HF_TOKEN",
    ),
    "model rm": ("corral model rm hf://Qwen/Qwen3-8B --node n2",),
    "outputs": ("corral outputs train", "corral outputs train --attempt 1"),
    "cp": ("corral cp train:model.pt .", "corral cp train: ./all --rank 4"),
    "attach": ("corral attach train", "corral attach train --rank 3 -- nvidia-smi"),
    "stop": (
        "corral stop train",
        "corral stop j17 j18 -y",
        "corral stop train --signal USR1",
    ),
    "suspend": ("corral suspend train",),
    "resume": ("corral resume train", "corral resume train --step 400"),
    "events": ("corral events train", "corral events --follow"),
    "metrics": ("corral metrics train", "corral metrics --node n3 --since 6h"),
    "checkpoints ls": ("corral checkpoints ls train",),
    "checkpoints show": ("corral checkpoints show train 400 --verify",),
    "checkpoints compare": ("corral checkpoints compare train 200 400",),
    "checkpoints export": ("corral checkpoints export train 400 ./model --to hf",),
    "checkpoints pin": ("corral checkpoints pin train 400",),
    "checkpoints unpin": ("corral checkpoints unpin train 400",),
    "checkpoints rm": ("corral checkpoints rm train 400",),
    "queue ls": ("corral queue ls",),
    "queue show": ("corral queue show vision",),
    "queue set": (
        "corral queue set vision --gpus 8 --borrow 4",
        "corral queue set vision --idle warn:15m,reclaim:1h",
    ),
    "queue rm": ("corral queue rm vision",),
    "service ls": ("corral service ls", "corral service ls --all"),
    "service show": ("corral service show chat", "corral service show chat --json"),
    "service scale": (
        "corral service scale chat 4",
        "corral service scale chat 2..8",
        "corral service scale chat 2..6 --role prefill",
    ),
    "service rollback": (
        "corral service rollback chat",
        "corral service rollback chat --revision 3",
    ),
    "service stop": ("corral service stop chat", "corral service stop chat -y"),
    "service chat": (
        "corral service chat chat",
        "corral service chat chat --prompt Hello",
    ),
    "batch submit": (
        "corral batch submit questions.jsonl --service chat",
        "corral batch submit questions.jsonl --service chat --within 6h --queue nights",
    ),
    "batch ls": ("corral batch ls", "corral batch ls --all"),
    "batch show": ("corral batch show j17", "corral batch show j17 --json"),
    "batch cancel": ("corral batch cancel j17",),
    "simulate": (
        "corral simulate jobs.csv --cluster 64x8 --policy fifo-skip las default",
        "corral simulate --own --queues queues.yaml",
    ),
    "plan model": ("corral plan model llama-3.1-70b --gpu h200",),
    "plan train": (
        "corral plan train llama-3.1-70b --gpus 512 --gpu h100 --tokens 1e12",
    ),
    "plan serve": (
        "corral plan serve llama-3.1-8b --qps 20 --input 1000 --output 200 --ttft-p90 500",
    ),
    "plan cluster": ("corral plan cluster --gpus 1024 --gpu h100 --html cluster.html",),
    "plan cost": (
        "corral plan cost --gpus 16 --utilisation 0.6",
        "corral plan cost --budget-usd 500000 --assume pue=1.2",
    ),
    "plan capacity": (
        "corral plan capacity --run-hours 20 --runs 30 --run-gpus 16",
        "corral plan capacity --history jobs.csv --wait 30m",
    ),
    "plan reliability": (
        "corral plan reliability llama-3.1-405b --gpus 16384 --days 54",
    ),
    "plan predict": (
        "corral plan predict rows.csv --kind training --out predicted.csv",
    ),
    "plan validate": ("corral plan validate training rows.csv",),
    "plan prices": ("corral plan prices h100", "corral plan prices --csv > mine.csv"),
    "plan catalog": ("corral plan catalog", "corral plan catalog gpus h100"),
    "report usage": ("corral report usage --by user --since 7d",),
    "report waste": ("corral report waste --by job --since 7d",),
    "report cost": ("corral report cost --by queue --csv",),
    "report lent": ("corral report lent --json",),
    "report goodput": ("corral report goodput --by job --html goodput.html",),
    "import sacct": ("corral import sacct slurm.txt --dry-run",),
    "import kueue": ("corral import kueue workloads.json --dry-run",),
    "node ls": ("corral node ls",),
    "node show": ("corral node show n1",),
    "node cordon": ("corral node cordon n1 n2", "corral node cordon --suspects"),
    "node drain": ("corral node drain n1",),
    "node uncordon": ("corral node uncordon n1",),
    "node clear": ("corral node clear n1",),
    "node token": ("corral node token --uses 8 --minutes 60",),
    "node rm": ("corral node rm n1",),
    "node dead": ("corral node dead n1",),
    "node label": ("corral node label n1 zone=a", "corral node label n1 zone-"),
    "doctor look": ("corral doctor",),
    "doctor gpu": ("corral doctor gpu",),
    "doctor net": ("corral doctor net",),
    "doctor data": ("corral doctor data /data",),
    "alert ls": ("corral alert ls",),
    "alert test": ("corral alert test",),
    "secret set": ("corral secret set WANDB_API_KEY",),
    "secret ls": ("corral secret ls",),
    "secret rm": ("corral secret rm WANDB_API_KEY",),
    "user add": ("corral user add ann", "corral user add lee --role operator"),
    "user ls": ("corral user ls",),
    "user show": ("corral user show ann",),
    "user set": (
        "corral user set ann --role operator",
        "corral user set ann --disable",
    ),
    "user link": ("corral user link ann --pending 3",),
    "user unlink": ("corral user unlink ann",),
    "user pending": ("corral user pending",),
    "user rm": ("corral user rm ann",),
    "token create": ("corral token create ann --expires 90d",),
    "token ls": ("corral token ls",),
    "token revoke": ("corral token revoke t1a2b3c4d5e6f",),
    "key rotate": ("corral key rotate",),
    "key generate": ("corral key generate corral.identity",),
    "backup": ("corral backup monday.backup",),
    "restore": ("corral restore monday.backup --dir ~/corral-2",),
    "slurm-shims": ("corral slurm-shims --into ~/slurm-bin",),
    "unit install": ("corral unit install --user",),
    "unit remove": ("corral unit remove --user",),
    "gateway": (
        "corral gateway --join https://head.example.org:8470 --token TOKEN --host 0.0.0.0",
        "corral gateway --routes routes.json",
    ),
    "audit": ("corral audit --since 1d", "corral audit --verify"),
    "completion install": ("corral completion install",),
    "completion show": ("corral completion show bash",),
}


def with_examples(command: str, text: str) -> str:
    """Return the help of a command, followed by the command's examples."""
    lines = EXAMPLES.get(command, ())
    if not lines:
        return text
    # "Examples:" is a section of docstrings to the reader of help, which leaves it out.
    return (
        f"{text.rstrip()}\n\nFor example:\n\n"
        + "\n".join(f"    {line}" for line in lines)
        + "\n"
    )
