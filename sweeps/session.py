"""One sitting with a sweep: run what is left, mirror it, judge it, say where to look.

`sweeps.environment.prepare_ray` has to run before this module is imported.
"""

import time
from dataclasses import dataclass
from typing import Literal

from rich.console import Console

from grpo_core.metrics import StepMetrics
from sweeps.display import print_results, say, where_to_look
from sweeps.live import LiveView
from sweeps.orchestrate import AS_PLANNED, Conduct, Listener, Resources, run_trials, slots
from sweeps.record import SweepRecord, TrialEnd
from sweeps.replay.spared import Follower, Grounds, Told, spare
from sweeps.report.tables import render_markdown
from sweeps.report.waterfall import draw_trial
from sweeps.report.write import write_report
from sweeps.results import Results, load_results
from sweeps.search.queue import Changed, Queue
from sweeps.search.tpe import TpeQueue
from sweeps.search.waves import WaveQueue
from sweeps.space import Space
from sweeps.tracking import Mirror, Tracker

Gate = Literal["never", "unhealthy", "no-recommendation"]
DELIVERY_SECONDS = 120.0
"""How long the end of a sweep waits for MLflow to take what is left."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a sitting ended."""

    results: Results
    """Everything that the record holds."""
    interrupted: bool
    """The user stopped it; trials are left that the same command goes on with."""

    def passes(self, gate: Gate) -> bool:
        """No trial failed, and the gate is met."""
        if self.results.failed:
            return False
        match gate:
            case "never":
                return True
            case "no-recommendation":
                return self.results.recommended is not None
            case "unhealthy":
                verdicts = [c.verdict.outcome for c in self.results.configurations]
                return not {"unhealthy", "edge"} & set(verdicts)


@dataclass(frozen=True, slots=True)
class Savings:
    """What is not trained, because something is known already."""

    implied: bool = True
    """What is proven dead or proven to repeat another trial."""
    racing: bool = True
    """Further seeds of cells that are certainly broken or cannot win."""


class Session:
    """Runs a sweep and shows it."""

    def __init__(self, record: SweepRecord, tracker: Tracker, console: Console) -> None:
        self._record, self._console, self._tracker = record, console, tracker
        self._mirror = Mirror(record, tracker, illustrate=draw_trial)

    def run(
        self,
        space: Space,
        resources: Resources,
        conduct: Conduct = AS_PLANNED,
        savings: Savings | None = None,
    ) -> Outcome:
        """Run every trial that has not ended, then judge and report the whole sweep.

        Args:
            space: What was asked; a search chooses its cells while it runs.
            resources: What a trial occupies.
            conduct: How every trial is run.
            savings: What is not trained.

        Raises:
            GrpoError: another process runs this sweep.
        """  # noqa: DOC502 - raised by the record
        with self._record.sole_driver():
            interrupted = self._run_trials(space, resources, conduct, savings or Savings())
            return self._conclude(interrupted=interrupted)

    def _conclude(self, *, interrupted: bool) -> Outcome:
        results = load_results(self._record)
        folder = write_report(self._record, results)
        best = results.recommended
        self._mirror.finish(render_markdown(results), None if best is None else best.name)
        print_results(results, self._console)
        say(self._console, f"report   {folder}")
        for line in where_to_look(self._record, self._mirror.close(timeout=DELIVERY_SECONDS)):
            say(self._console, line)
        return Outcome(results, interrupted)

    def _run_trials(
        self, space: Space, resources: Resources, conduct: Conduct, savings: Savings
    ) -> bool:
        """Whether the user stopped it."""
        waker = Waker(self._mirror)
        planned = len(self._record.header().trials)
        spared = self._spared(space, savings)
        changed: list[Changed] = []
        told: list[Told] = [waker.trial_ended]
        queue = self._queue(space, resources, savings, spared=spared, changed=changed, told=told)
        try:
            with LiveView(self._record, spared=spared) as view:
                changed.append(view.replan)
                told.insert(0, view.trial_ended)
                follower = Follower(self._record, spared, told, time.time)
                follower.settle()
                listeners: list[Listener] = [view, waker, follower]
                run_trials(
                    self._record,
                    queue,
                    resources,
                    listeners,
                    hours=space.budget.hours,
                    conduct=conduct,
                )
        except KeyboardInterrupt:
            return True
        finally:
            waker.start()
            if len(self._record.header().trials) > planned:
                self._mirror_anew()
        left = any(spec.id not in spared for spec in self._record.unfinished())
        return space.budget.hours is None and (left or not queue.exhausted)

    def _spared(self, space: Space, savings: Savings) -> dict[str, Grounds]:
        """Planned trials that need not run; a search looks at its own when it plans them."""
        self._record.drop({})
        return spare(self._record) if savings.implied and not space.design.searches else {}

    def _queue(
        self,
        space: Space,
        resources: Resources,
        savings: Savings,
        *,
        spared: dict[str, Grounds],
        changed: list[Changed],
        told: list[Told],
    ) -> Queue:
        """What hands out the trials."""
        if not space.design.searches:
            return WaveQueue(self._record, spared, racing=savings.racing, changed=changed)
        return TpeQueue(
            self._record,
            space,
            slots=lambda: slots(resources),
            racing=savings.racing,
            implied=savings.implied,
            changed=changed,
            told=told,
        )

    def _mirror_anew(self) -> None:
        """A mirror knows the trials that were planned when it began; a search has added some."""
        self._mirror.close(timeout=DELIVERY_SECONDS)
        self._mirror = Mirror(self._record, self._tracker, illustrate=draw_trial)
        self._mirror.start()


class Waker:
    """Tells the mirror that the record has grown.

    MLflow costs seconds of CPU to load and to make its database; the first result comes before it.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._started = False

    def trial_started(self, _trial_id: str) -> None:
        """Nothing is in the record yet."""

    def trial_advanced(self, _trial_id: str, _steps: list[StepMetrics]) -> None:
        """New steps."""
        if self._started:
            self._mirror.wake()

    def trial_ended(self, _trial_id: str, end: TrialEnd) -> None:
        """A trial's end; one that is only implied comes before the first result."""
        if not end.implied:
            self.start()
        if self._started:
            self._mirror.wake()

    def start(self) -> None:
        """Have the mirror begin, once."""
        if not self._started:
            self._started = True
            self._mirror.start()
