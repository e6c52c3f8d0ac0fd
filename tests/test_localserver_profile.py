"""The profile of the local server: a short string in, a `Profile` or all its problems out."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep.localserver.profile import CLAUSES, Profile, ProfileError
from prep.localserver.timing import Distribution, Rhythm

DEFAULT = Profile()


def _d(shape: str, *args: float) -> Distribution:
    return Distribution(shape, args)


READ = [
    ("nothing is the default", "", DEFAULT),
    ("white space of any kind separates", " \t\nseed=7\n\n error=1% ", Profile(seed=7, error=0.01)),
    ("a bare number is fixed seconds", "ready=1.5", Profile(ready=Distribution("fixed", (1.5,)))),
    ("fixed", "ready=fixed(0)", Profile(ready=Distribution("fixed", (0.0,)))),
    ("lognormal by median and sigma", "ready=lognormal(8,0.3)", Profile(ready=_d("lognormal", 8, 0.3))),
    ("uniform", "gone=uniform(0.1,0.5)", DEFAULT),
    ("uniform of equal bounds", "gone=uniform(2,2)", Profile(gone=_d("uniform", 2, 2))),
    ("exponential by mean", "latency=exponential(0.2)", Profile(latency=_d("exponential", 0.2))),
    ("space within parentheses", "gone=uniform(0.1, 0.5) seed=2", Profile(seed=2)),
    ("mix by share, rare and usual", "ready=mix(0.04,60,1)", Profile(ready=_d("mix", 0.04, 60, 1))),
    ("mix of one kind only", "latency=mix(1,2,0)", Profile(latency=_d("mix", 1, 2, 0))),
    ("a clock that is ahead", "clock=+37", Profile(clock=37.0)),
    ("a clock that is behind", "clock=-3600", Profile(clock=-3600.0)),
    ("a clock that is right", "clock=+0", DEFAULT),
    ("shares are percentages", "error=2% never=0.5%", Profile(error=0.02, never=0.005)),
    ("a share of everything", "error=100%", Profile(error=1.0)),
    ("refused creates", "create=429:5%,500:1%", Profile(create=((429, 0.05), (500, 0.01)))),
    ("every create refused", "create=402:40%,503:60%", Profile(create=((402, 0.4), (503, 0.6)))),
    ("the label filter on", "label_filter=on", Profile(label_filter=True)),
    ("the label filter off", "label_filter=off", DEFAULT),
    ("foreign sandboxes", "foreign=1500", Profile(foreign=1500)),
    ("plans and credit", "credit=2.5 plans=ultra", Profile(plans="ultra", credit=2.5)),
    (
        "caps",
        "max_users=3 max_sandboxes=0 max_storage=50",
        Profile(max_users=3, max_sandboxes=0, max_storage=50),
    ),
    ("mail that is sent", "mail=smtp", Profile(mail="smtp")),
    (
        "the proxy and commands",
        "proxy=2 exec=uniform(0,1)",
        Profile(proxy=_d("fixed", 2), exec=_d("uniform", 0, 1)),
    ),
    ("refused commands", "exec_status=500:5%", Profile(exec_status=((500, 0.05),))),
    ("a stream's rhythm", "stream=0.3+50x0.02", Profile(stream=Rhythm(0.3, 50, 0.02))),
    ("a stream all at once", "stream=0+1x0", Profile(stream=Rhythm(0.0, 1, 0.0))),
    ("a stream in pieces", "chunks=mixed breaks=5%", Profile(chunks="mixed", breaks=0.05)),
]

REFUSED = [
    ("a misspelt clause", "redy=2", "redy: no such clause; did you mean ready?"),
    ("a clause like none", "xyz=2", "xyz: no such clause; there are ready, error, never, gone, create"),
    ("no value", "ready", "ready: write ready=VALUE"),
    ("a duplicate", "seed=1 seed=2", "seed: given more than once"),
    ("an unknown distribution", "ready=normal(1,2)", "no distribution 'normal'"),
    ("a word for a number", "ready=soon", "'soon' is not a distribution"),
    ("too few arguments", "ready=lognormal(2)", "lognormal takes median,sigma"),
    ("too many arguments", "gone=fixed(1,2)", "fixed takes x"),
    ("an argument that is no number", "gone=uniform(a,1)", "'a' is not a number"),
    ("an open parenthesis", "gone=uniform(1,2", "gone=uniform(1,2: 'uniform(1,2' is not a distribution"),
    ("negative seconds", "ready=-1", "-1 is not from 0 to 1e+06"),
    ("not a number, literally", "ready=fixed(nan)", "nan is not from 0 to 1e+06"),
    ("infinite seconds", "ready=fixed(inf)", "inf is not from 0 to 1e+06"),
    ("a lognormal about nothing", "ready=lognormal(0,1)", "a lognormal's median must be more than 0"),
    ("a wild lognormal", "ready=lognormal(1,11)", "11 is not from 0 to 10"),
    ("bounds the wrong way round", "gone=uniform(2,1)", "first bound must not exceed its second"),
    ("a share without percent", "error=2", "write a share as a percentage, such as 5%"),
    ("a share above everything", "never=101%", "101 is not from 0 to 100"),
    ("a refusal without share", "create=429", "'429' is not STATUS:P%, such as 429:5%"),
    (
        "a status that creates never have",
        "create=418:1%",
        "creates are not refused with 418; there are 400, 402",
    ),
    ("a success as refusal", "create=202:1%", "creates are not refused with 202"),
    ("the same status twice", "create=429:1%,429:2%", "429 given more than once"),
    ("more refusals than creates", "create=429:60%,500:41%", "the shares add up to more than 100%"),
    ("a switch half on", "label_filter=yes", "write on or off"),
    ("a fraction of a sandbox", "foreign=1.5", "'1.5' is not a whole number"),
    ("too many foreign", "foreign=100001", "100001 is more than 100000"),
    ("a mix of more than all", "ready=mix(1.5,60,1)", "1.5 is not from 0 to 1"),
    ("a mix's share as a percentage", "ready=mix(4%,60,1)", "'4%' is not a number"),
    ("a mix without the usual", "ready=mix(0.04,60)", "mix takes share,rare,usual"),
    ("an offset without a sign", "clock=37", "'37' is not an offset in whole seconds, such as +37"),
    ("an offset with a fraction", "clock=+1.5", "'+1.5' is not an offset in whole seconds"),
    ("an offset of weeks", "clock=+1000000", "'+1000000' is not an offset in whole seconds"),
    ("an offset in another unit", "clock=+1h", "'+1h' is not an offset in whole seconds"),
    ("a tier that there is not", "plans=gold", "'gold' is not one of free, pro, ultra, custom"),
    ("credit without plans", "credit=5", "credit: means nothing without plans=TIER"),
    ("negative credit", "plans=free credit=-1", "-1 is not from 0"),
    ("half a sandbox as a cap", "max_sandboxes=1.5", "'1.5' is not a whole number"),
    ("mail by pigeon", "mail=pigeon", "'pigeon' is not one of memory, smtp"),
    ("a stream without its gap", "stream=0.3+50", "'0.3+50' is not FIRST+COUNTxGAP"),
    ("a stream of nothing", "stream=0+0x1", "a stream has at least one output"),
    ("a stream of half outputs", "stream=0+1.5x1", "'1.5' is not a whole number"),
    ("a stream that never begins", "stream=inf+5x1", "inf is not from 0 to 1e+06"),
    ("an endless stream", "stream=0+100001x1", "100001 is more than 100000"),
    ("other pieces", "chunks=half", "'half' is not one of whole, mixed, crlf"),
    ("a command's success as refusal", "exec_status=200:5%", "commands are not refused with 200"),
    ("a negative seed", "seed=-1", "'-1' is not a whole number"),
]


@pytest.mark.parametrize(("text", "profile"), [case[1:] for case in READ], ids=[case[0] for case in READ])
def test_a_profile_is_read(text: str, profile: Profile) -> None:
    """Each clause sets its field, and what is not said stays at its default."""
    assert Profile.parse(text) == profile


@pytest.mark.parametrize(("text", "told"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_bad_profile_is_refused_with_its_problem(text: str, told: str) -> None:
    """What cannot be meant is refused, and the one problem says what to write."""
    with pytest.raises(ProfileError) as refused:
        Profile.parse(text)
    [problem] = refused.value.problems
    assert told in problem


def test_all_problems_are_told_at_once() -> None:
    """One look at the message is enough to mend the whole string."""
    with pytest.raises(ProfileError) as refused:
        Profile.parse("ready=x error=2 seed=3 create=1:1% colour=red error=3%")
    assert [problem.split(":")[0].split("=")[0] for problem in refused.value.problems] == [
        "ready",
        "error",
        "create",
        "colour",
        "error",
    ]


@pytest.mark.parametrize(
    ("written", "median", "low", "high"),
    [
        ("lognormal(2.0,0.4)", 2.0, 0.0, math.inf),
        ("uniform(1,3)", 2.0, 1.0, 3.0),
        ("exponential(1)", math.log(2), 0.0, math.inf),
        ("fixed(0.3)", 0.3, 0.3, 0.3),
        ("exponential(0)", 0.0, 0.0, 0.0),
        ("mix(0.1,60,1)", 1.0, 1.0, 60.0),
    ],
)
def test_samples_follow_the_distribution(written: str, median: float, low: float, high: float) -> None:
    """Drawn often, a distribution shows the median that was written, and never leaves its bounds."""
    distribution = Profile.parse(f"ready={written}").ready
    rng = random.Random(1)
    samples = [distribution.sample(rng) for _ in range(5000)]
    assert statistics.median(samples) == pytest.approx(median, rel=0.05)
    assert low <= min(samples) <= max(samples) <= high


@pytest.mark.parametrize(("share", "rare"), [(0.0, 0), (0.04, 200), (0.5, 2500), (1.0, 5000)])
def test_a_mix_has_so_many_rare_ones(share: float, rare: int) -> None:
    """A share of the draws is the rare value, the rest the usual one, and there is nothing between."""
    distribution = Profile.parse(f"ready=mix({share},60,1)").ready
    rng = random.Random(1)
    samples = [distribution.sample(rng) for _ in range(5000)]
    assert set(samples) <= {60.0, 1.0}
    assert samples.count(60.0) == pytest.approx(rare, abs=100 if 0 < share < 1 else 0)


def test_a_stream_repeats_with_its_seed_and_differs_by_purpose() -> None:
    """The same seed and purpose give the same draws; another seed or purpose gives others."""

    def first(text: str, purpose: str) -> float:
        return Profile.parse(text).draws(purpose).random()

    assert first("seed=7", "ready") == first("seed=7 error=5%", "ready")
    assert len({first("seed=7", "ready"), first("seed=8", "ready"), first("seed=7", "gone")}) == 3


_fragments = st.sampled_from(
    [
        *CLAUSES,
        "=",
        "(",
        ")",
        ",",
        ":",
        "%",
        " ",
        "429",
        "1",
        "0.5",
        "-1",
        "1e999",
        "lognormal",
        "fixed",
        "mix",
        "+37",
        "on",
        "0+5x1",
        "free",
    ]
)


@given(st.one_of(st.text(), st.lists(_fragments).map("".join)))
def test_any_text_is_a_profile_or_is_refused(text: str) -> None:
    """No text brings the parser down: it is read, or refused with at least one problem."""
    try:
        profile = Profile.parse(text)
    except ProfileError as refused:
        problems = refused.problems
    else:
        assert profile.ready.sample(profile.draws("ready")) >= 0
        problems = ["none"]
    assert problems
