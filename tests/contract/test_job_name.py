"""Names of jobs for programs and for people."""

from hypothesis import given as over
from hypothesis import strategies as st

from dlcpd.contract.job_name import LAUNCH_BYTES, MAX_GIVEN, given, means, of_launch, title

NAMES = st.text(min_size=1, max_size=2 * MAX_GIVEN)
LAUNCHES = st.binary(min_size=LAUNCH_BYTES, max_size=LAUNCH_BYTES)


@over(NAMES, LAUNCHES)
def test_a_launch_has_the_name_that_was_given(name: str, launch: bytes) -> None:
    job = of_launch(name, launch)
    assert given(job) == name[:MAX_GIVEN]
    assert means(job, job) and means(given(job), job) and means(job, given(job))
    assert title(job, {}) == given(job)


@over(st.lists(st.tuples(st.sampled_from(["bert", "gpt"]), LAUNCHES), unique=True, max_size=6))
def test_jobs_of_a_host_have_titles_of_their_own(jobs: list[tuple[str, bytes]]) -> None:
    titles: dict[str, str] = {}
    for name, launch in jobs:
        job = of_launch(name, launch)
        titles[job] = title(job, titles)
        assert title(job, titles) == titles[job], "it keeps its title"
        assert means(name, titles[job])
    assert len(set(titles.values())) == len(titles)
    assert {name for name, _ in jobs} <= set(titles.values()) | {""}


def test_a_name_that_is_of_no_launch_is_the_given_one() -> None:
    for name in ("train", "train-7", "train-0123456789abcde", "-0123456789abcdef", ""):
        assert given(name) == name
    assert not means("train", "train-7") and not means("gpt", "gpt2-0123456789abcdef")
