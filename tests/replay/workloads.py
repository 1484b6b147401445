"""Small workloads made up by hypothesis."""

from hypothesis import strategies as st

from corral.replay import Workload

NODES = (8, 8, 4, 2)


@st.composite
def workloads(draw: st.DrawFn, most: int = 40, widest: int = 18) -> Workload:
    """Limits are at least as long as the jobs; users and names are few."""
    jobs = draw(
        st.lists(
            st.tuples(
                st.integers(0, 3_000),
                st.sampled_from((1, 7, 40, 400, 3_000, 50_000, 400_000)),
                st.sampled_from(
                    [n for n in (1, 1, 1, 2, 3, 4, 8, 8, 10, 16, 18) if n <= widest]
                ),
                st.integers(0, 2),
                st.sampled_from((1, 1, 2, 10)),
                st.integers(-1, 2),
            ),
            min_size=1,
            max_size=most,
        )
    )
    jobs.sort()
    submits, durations, gpus, queues, slack, users = zip(*jobs, strict=True)
    return Workload(
        submits=[float(at) for at in submits],
        durations=[float(own) for own in durations],
        gpus=gpus,
        queues=queues,
        limits=[float(own * more) for own, more in zip(durations, slack, strict=True)],
        users=users,
        kinds=[gang % 3 for gang in gpus],
    )
