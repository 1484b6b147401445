"""Way in which the gateway learns which prompts a replica has in its cache."""

from corral.domain.coded import Coded


class Affinity(Coded):
    """Way in which the gateway learns which prompts a replica has in its cache."""

    PROMPT = "prompt", "from the prompts that it was sent, and the tokens it reports"
    EXACT = "exact", "from the events of its engine's cache"
