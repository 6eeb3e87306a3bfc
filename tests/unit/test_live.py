import io
import re
from pathlib import Path

import pytest
from typing_extensions import override

from sweeps.live import MOST_ROWS, LiveView, Progress, describe_end
from sweeps.record import SweepRecord, TrialEnd
from tests.sweep_records import make_step
from tests.sweeps_made import begun, end_of, finish, implied_end

SPACE = "space: {x: {a: {}, b: {actor.kl_ctl: 9.0}}}\nseeds: 2\nbudget: {steps: 10}\n"
SICK = end_of(0.25, outcome="unhealthy", symptom="kl_pinned", stage="returns", onset=4)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    @override
    def isatty(self) -> bool:
        return True


@pytest.fixture
def record(tmp_path: Path) -> SweepRecord:
    return begun(tmp_path, SPACE)


def ids(record: SweepRecord) -> list[str]:
    return [spec.id for spec in record.header().trials]


def played(record: SweepRecord, stream: io.StringIO) -> str:
    """A sweep in which `a · s1` converges, `b · s1` is sick and `a · s2` is on its way."""
    a1, b1, a2, _ = ids(record)
    with LiveView(record, stream) as view:
        for trial in (a1, b1):
            view.trial_started(trial)
            view.trial_advanced(trial, [make_step(step) for step in range(10)])
        view.trial_ended(a1, end_of(0.95))
        view.trial_ended(b1, SICK)
        view.trial_started(a2)
        view.trial_advanced(a2, [make_step(0), make_step(1, reward=0.4)])
    return stream.getvalue()


def plain(text: str) -> str:
    """Without colours and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_without_a_terminal_every_end_is_a_line(record: SweepRecord) -> None:
    lines = played(record, io.StringIO()).splitlines()
    assert lines[0].startswith("kl: 0/4 done · 0 running · 4 waiting · 0:00 · starting Ray")
    assert lines[1:] == [
        "  a · s1: healthy (converged), final pass rate 0.95, 4 s",
        "  b · s1: unhealthy (kl_pinned at stage returns from step 4), final pass rate 0.25, 4 s",
    ]


def test_a_terminal_shows_a_table_with_a_row_per_configuration(record: SweepRecord) -> None:
    shown = plain(played(record, Terminal()))
    assert "✓ 0.95" in shown
    assert "✗ 0.25" in shown
    assert "kl_pinned" in shown
    assert "2/10 0.40" in shown  # a · s2 after two of its ten steps
    assert "seed 1" in shown
    assert "seed 2" in shown


def test_the_headline_counts_verdicts_and_names_the_best(record: SweepRecord) -> None:
    a1, b1, a2, b2 = ids(record)
    finish(record, {"a": [end_of(0.95), end_of(0.97)], "b": [SICK, None]})
    progress = Progress.of(record)
    progress.running[b2] = None
    headline = progress.headline()
    assert headline.startswith("kl: 3/4 done · 1 running · 0 waiting · ")
    assert headline.endswith("2 healthy · 1 unhealthy · best 0.97 (a · s2)")
    assert {a1, b1, a2} == set(progress.ends)


def test_what_is_implied_is_counted_apart_and_not_waited_for(record: SweepRecord) -> None:
    a1, b1, _, b2 = ids(record)
    finish(record, {"a": [end_of(0.95), None], "b": [implied_end(), None]})
    progress = Progress.of(record, spared=[b2])
    assert progress.headline().startswith("kl: 2/4 done · 0 running · 1 waiting · ")
    assert progress.headline().endswith("1 healthy · 1 implied · best 0.95 (a · s1)")
    progress.first_start, progress.steps_here = 100.0, 10
    # 10 steps took 10 s; only the 10 of a · s2 are left.
    assert progress.seconds_left(110.0) == pytest.approx(10.0)
    assert {a1, b1} == set(progress.ends)


def test_the_table_tells_implied_trials_from_those_that_ran(record: SweepRecord) -> None:
    _, b1, _, b2 = ids(record)
    stream = Terminal()
    with LiveView(record, stream, spared=[b1, b2]) as view:
        view.trial_ended(b1, implied_end())
    row = next(line for line in plain(stream.getvalue()).splitlines()[::-1] if line.startswith("b"))
    assert row.split() == ["b", "✗", "implied", "implied", "zero_signal"]


def test_a_sick_trial_is_never_the_best(record: SweepRecord) -> None:
    finish(record, {"b": [end_of(0.99, outcome="unhealthy", symptom="x")]})
    assert "best" not in Progress.of(record).headline()


def test_time_left_follows_from_the_steps_so_far(record: SweepRecord) -> None:
    a1, b1, _, _ = ids(record)
    progress = Progress.of(record)
    assert progress.seconds_left(100.0) is None
    progress.first_start = 100.0
    assert progress.seconds_left(110.0) is None  # started, but no step yet
    progress.ends[a1] = end_of()
    progress.running[b1] = make_step(4)
    progress.steps_here = 15
    # 15 steps took 30 s; 5 of b · s1 and 10 each of two more are left.
    assert progress.seconds_left(130.0) == pytest.approx(50.0)


def test_trials_beyond_the_budget_are_not_waited_for(tmp_path: Path) -> None:
    limited = begun(tmp_path, SPACE.replace("steps: 10", "steps: 10, trials: 1"))
    assert Progress.of(limited).waiting == 1


def test_a_resumed_sweep_shows_what_had_ended_before(record: SweepRecord) -> None:
    finish(record, {"a": [end_of(0.95), None]})
    stream = io.StringIO()
    with LiveView(record, stream):
        pass
    assert stream.getvalue().startswith("kl: 1/4 done · 0 running · 3 waiting")


def test_names_with_brackets_are_shown_as_they_are(tmp_path: Path) -> None:
    record = begun(tmp_path, "space: {x: {'[red]a[/red]': {}}}\nseeds: 1\n")
    stream = io.StringIO()
    with LiveView(record, stream) as view:
        view.trial_ended(ids(record)[0], end_of(0.9))
    assert "[red]a[/red] · s1: healthy" in stream.getvalue()
    terminal = Terminal()
    with LiveView(record, terminal):
        pass
    assert "[red]a[/red]" in plain(terminal.getvalue())


def test_a_large_sweep_shows_what_moves_and_what_ended_last(tmp_path: Path) -> None:
    levels = ", ".join(f"{i}.0" for i in range(MOST_ROWS + 20))
    record = begun(tmp_path, f"space: {{actor.kl_ctl: [{levels}]}}\nseeds: 1\n")
    progress = Progress.of(record)
    assert progress.rows() == [f"kl_ctl={i}" for i in range(MOST_ROWS)]
    progress.ends = {trial: end_of(0.9) for trial in ids(record)[:40]}
    progress.running[ids(record)[45]] = None
    assert progress.rows() == ["kl_ctl=45", *[f"kl_ctl={i}" for i in range(39, 10, -1)]]


@pytest.mark.parametrize(
    ("end", "line"),
    [
        (end_of(0.9), "healthy (converged), final pass rate 0.90, 4 s"),
        (SICK, "unhealthy (kl_pinned at stage returns from step 4), final pass rate 0.25, 4 s"),
        (
            end_of(0.3, outcome="unhealthy", symptom="zero_signal", onset=0),
            "unhealthy (zero_signal from step 0), final pass rate 0.30, 4 s",
        ),
        (
            end_of(0.5, outcome="inconclusive"),
            "inconclusive (it is fine), final pass rate 0.50, 4 s",
        ),
        (end_of(None, outcome="inconclusive", error="it raised"), "failed: it raised"),
        (implied_end(), "implied unhealthy, not run: reward_scaling=0"),
        (
            implied_end(of="0123456789ab", outcome="healthy"),
            "implied healthy, not run: equal to a, because the estimator decides nothing",
        ),
    ],
    ids=["healthy", "sick", "onset-0", "inconclusive", "failed", "dead", "equal"],
)
def test_an_end_in_a_line(end: TrialEnd, line: str) -> None:
    assert describe_end(end) == line
