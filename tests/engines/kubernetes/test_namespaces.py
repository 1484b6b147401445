"""Which namespace a queue's jobs use, and what the head remembers of it: the rules
alone."""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral.domain.errors import SpecInvalid, Trouble
from corral.domain.ids import JobId, QueueName
from corral.domain.observed_state import AttemptKey
from corral.engines.kubernetes import names
from corral.engines.kubernetes.head_map import used_namespaces
from corral.engines.kubernetes.namespaces import Namespace, namespace_of
from corral.engines.kubernetes.queue_namespaces import QueueNamespaces
from corral.engines.kubernetes.settings import KubernetesSettings
from tests.engines.kubernetes.objects import CLUSTER, KEY, job, pod
from tests.kube.cluster import require_kubectl
from tests.kube.typed import model_of, unknown_fields

DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "kubernetes.md"
BY_QUEUE = {QueueName("vision"): "team-vision", QueueName("video"): "team-video"}
VISION, NLP = QueueName("vision"), QueueName("nlp")


@pytest.mark.parametrize(
    ("path", "namespace"),
    [
        (["vision"], "team-vision"),
        (["detect", "vision", "research"], "team-vision"),
        (["clips", "video", "vision"], "team-video"),
        (["research"], "own"),
        (["nlp", "research"], "own"),
        ([], "own"),
    ],
)
def test_the_nearest_queue_upward_decides(path: list[str], namespace: str) -> None:
    assert namespace_of([QueueName(one) for one in path], BY_QUEUE, "own") == namespace


def test_the_setting_is_read_as_it_is_typed() -> None:
    read = KubernetesSettings.read(
        {"queue_namespaces": "vision=team-vision, nlp=team-nlp"}
    )
    assert read.namespace_by_queue == {"vision": "team-vision", "nlp": "team-nlp"}
    assert KubernetesSettings.read({}).namespace_by_queue == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vision", "'' is not a valid name of a namespace"),
        ("vision=", "'' is not a valid name of a namespace"),
        ("vision=Team", "'Team' is not a valid name of a namespace"),
        ("vision=-team", "'-team' is not a valid name of a namespace"),
        ("vision=team.one", "'team.one' is not a valid name of a namespace"),
        (f"vision={'x' * 64}", "is not a valid name of a namespace"),
        ("=team", "'' is not a valid name of a queue"),
        ("a b=team", "'a b' is not a valid name of a queue"),
        ("vision=team-one,vision=team-two", "queue vision is named twice"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_a_way_out(
    text: str, why: str
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        KubernetesSettings.read({"queue_namespaces": text})
    assert why in refused.value.message
    assert "--set queue_namespaces=vision=team-vision,nlp=team-nlp" in (
        refused.value.hint or ""
    )
    KubernetesSettings.read({"queue_namespaces": f"vision={'x' * 63},nlp=team,cv=team"})


@pytest.mark.parametrize(
    ("text", "used"),
    [
        (None, {}),
        (
            '{"team-vision": ["vision", "detect"]}',
            {"team-vision": {"vision", "detect"}},
        ),
        ("not JSON", {}),
        ("[]", {}),
        ('{"../kube-system": ["vision"], "team": "vision"}', {}),
    ],
)
def test_what_the_head_remembers_is_read_or_left(
    text: str | None, used: object
) -> None:
    assert used_namespaces(text) == used


def test_the_role_of_a_queues_namespace_is_that_of_the_clusters_own() -> None:
    """And the binding is for the account that roles.yaml makes."""
    own = list(yaml.safe_load_all((DEPLOY / "roles.yaml").read_text()))
    role, binding = yaml.safe_load_all((DEPLOY / "queue-namespace.yaml").read_text())
    assert role["rules"] == next(one["rules"] for one in own if one["kind"] == "Role")
    (subject,) = binding["subjects"]
    account = next(one for one in own if one["kind"] == "ServiceAccount")
    assert (subject["name"], subject["namespace"]) == (
        account["metadata"]["name"],
        "corral",
    )
    for manifest in (role, binding):
        assert (model_of(manifest) is not None, unknown_fields(manifest)) == (True, [])


def test_the_guide_says_how_to_make_a_namespace_that_is_restricted() -> None:
    text = GUIDE.read_text()
    label = "kubectl label namespace team-vision pod-security.kubernetes.io/enforce=restricted"
    for command in (
        "kubectl create namespace team-vision",
        label,
        "kubectl -n team-vision apply -f deploy/kubernetes/queue-namespace.yaml",
    ):
        assert command in text
    for word in ("ResourceQuota", "NetworkPolicy", "LocalQueue"):
        assert word in text
    require_kubectl()
    words = ["label", "--local", "-o", "yaml", "-f", str(DEPLOY / "namespace.yaml")]
    done = subprocess.run(
        ["kubectl", *words, "--overwrite", label.split()[-1]],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    labels = yaml.safe_load(done.stdout)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


class Map:
    """The head's ConfigMap, kept in memory."""

    def __init__(self, used: Mapping[str, frozenset[QueueName]]) -> None:
        self.used = dict(used)

    async def add_use(self, namespace: str, queue: QueueName) -> None:
        self.used[namespace] = self.used.get(namespace, frozenset()) | {queue}


def spaces(
    setting: str,
    listed: Mapping[str, bool],
    used: Mapping[str, frozenset[QueueName]] | None = None,
    path: Sequence[QueueName] = (VISION,),
) -> QueueNamespaces:
    """Namespaces with whether each was listed. `path`: the queues of all jobs."""
    access: Any = object()
    kept: Any = Map(used or {})
    made = QueueNamespaces(
        access=access,
        cluster=CLUSTER,
        own_name="own",
        by_queue=KubernetesSettings(queue_namespaces=setting).namespace_by_queue,
        head_map=kept,
        queues=lambda job: path,
        changed=lambda: None,
    )
    client: Any = type("Access", (), {"client": None})()
    for name, is_listed in {"own": True, **listed}.items():
        one = Namespace.unwatched(name, CLUSTER, client, lambda: None)
        one.refusal = ""
        for mirror in one.mirrors:
            mirror.lists = int(is_listed)
            mirror.trouble = "" if is_listed else "forbidden"
        made.by_name[name] = one
    return made


def place(namespace: str) -> tuple[str, str]:
    """The key of the attempt's Job in a namespace."""
    return namespace, names.name_of(CLUSTER, KEY)


def chosen(made: QueueNamespaces, key: AttemptKey = KEY) -> str:
    return asyncio.run(made.choose(key)).name


def test_an_attempt_is_written_down_before_it_is_made_and_stays_where_it_is() -> None:
    made = spaces("vision=team-vision", {"team-vision": True})
    assert chosen(made) == "team-vision"
    assert made.head_map.used == {"team-vision": {"vision"}}
    made.queues = lambda job: (NLP,)
    assert chosen(made) == "team-vision"
    assert chosen(made, (JobId("j18"), KEY[1])) == "own"


def test_a_namespace_that_cannot_be_used_holds_its_own_queue_alone() -> None:
    made = spaces("vision=team-vision", {"team-vision": False})
    with pytest.raises(
        Trouble, match="namespace team-vision cannot be used: forbidden"
    ):
        chosen(made)
    assert made.placed_in == {}
    made.queues = lambda job: (NLP,)
    assert chosen(made) == "own"


def test_an_attempt_that_may_run_where_nothing_can_be_read_is_not_made_again() -> None:
    """The setting has changed while the namespace of before could not be read."""
    used = {"team-old": frozenset([VISION])}
    made = spaces("vision=team-vision", {"team-vision": True, "team-old": False}, used)
    with pytest.raises(Trouble, match="the job may already run in namespace team-old"):
        chosen(made)
    made.queues = lambda job: (NLP,)
    assert chosen(made, (JobId("j18"), KEY[1])) == "own"
    made.queues = lambda job: (VISION,)
    for mirror in made.by_name["team-old"].mirrors:
        mirror.lists = 1
    assert chosen(made) == "team-vision"


def test_an_attempt_without_a_known_queue_is_put_nowhere() -> None:
    with pytest.raises(Trouble, match="the queue of job j17_3 is not known"):
        chosen(spaces("vision=team-vision", {"team-vision": True}, path=()))
    assert chosen(spaces("", {}, path=())) == "own"


def test_an_attempt_is_looked_for_where_it_is() -> None:
    used = {"team-old": frozenset([VISION])}
    made = spaces("vision=team-vision", {"team-vision": True, "team-old": False}, used)
    assert [one.name for one in made.where(KEY)] == ["own", "team-old"]
    made.by_name["team-vision"].jobs.objects[place("team-vision")] = job()
    assert [one.name for one in made.where(KEY)] == ["own", "team-old"]
    made.head_map.used["team-vision"] = frozenset([VISION])
    assert [one.name for one in made.where(KEY)] == ["team-vision"]


def test_labels_in_a_namespace_prove_nothing_of_attempts_of_other_queues() -> None:
    """Whoever may make Jobs and pods in one team's namespace ends nothing of another
    team."""
    used = {"team-vision": frozenset([VISION]), "team-nlp": frozenset([NLP])}
    listed = {"team-vision": True, "team-nlp": True}
    made = spaces("vision=team-vision,nlp=team-nlp", listed, used, path=(NLP,))
    vision, nlp = made.by_name["team-vision"], made.by_name["team-nlp"]
    for space in (vision, nlp):
        space.jobs.objects[place(space.name)] = job()
        space.pods.objects[(space.name, "forged")] = pod("gpu-b", "Failed")
    assert (made.counted(vision, vision.jobs), made.counted(vision, vision.pods)) == (
        [],
        [],
    )
    assert len(made.counted(nlp, nlp.jobs)) == len(made.counted(nlp, nlp.pods)) == 1
    assert made.job(KEY) is nlp.job(KEY)
    assert made.where(KEY) == [nlp]
    made.placed_in[KEY] = "own"
    assert made.job(KEY) is None


def test_a_namespace_is_forgotten_once_nothing_is_left_there() -> None:
    used = {"team-old": frozenset([VISION]), "team-vision": frozenset([VISION])}
    made = spaces("vision=team-vision", {"team-vision": True, "team-old": True}, used)
    made.by_name["team-old"].jobs.objects[place("team-old")] = job()
    asyncio.run(made.drop_unused())
    assert made.head_map.used.keys() == {"team-old"}
    assert list(made.by_name) == ["own", "team-vision", "team-old"]
    made.by_name["team-old"].jobs.objects.clear()
    made.placed_in[KEY] = "team-old"
    asyncio.run(made.drop_unused())
    assert "team-old" in made.by_name
    made.placed_in.clear()
    asyncio.run(made.drop_unused())
    assert list(made.by_name) == ["own", "team-vision"]
    assert made.head_map.used == {}


def test_a_namespace_that_cannot_be_read_is_not_forgotten() -> None:
    made = spaces("", {"team-old": False}, {"team-old": frozenset([VISION])})
    asyncio.run(made.drop_unused())
    assert made.head_map.used.keys() == {"team-old"}
    (sentence,) = made.troubles()
    assert (
        sentence == "namespace team-old cannot be used: forbidden; jobs of vision wait"
    )
