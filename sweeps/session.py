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
from sweeps.orchestrate import AS_PLANNED, Conduct, Listener, Resources, run_trials
from sweeps.record import SweepRecord, TrialEnd
from sweeps.replay.spared import Follower, Grounds, spare
from sweeps.report.tables import render_markdown
from sweeps.report.waterfall import draw_trial
from sweeps.report.write import write_report
from sweeps.results import Results, load_results
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


class Session:
    """Runs a sweep and shows it."""

    def __init__(self, record: SweepRecord, tracker: Tracker, console: Console) -> None:
        self._record, self._console = record, console
        self._mirror = Mirror(record, tracker, illustrate=draw_trial)

    def run(
        self,
        resources: Resources,
        hours: float | None,
        conduct: Conduct = AS_PLANNED,
        *,
        implied: bool = True,
    ) -> Outcome:
        """Run every trial that has not ended, then judge and report the whole sweep.

        Args:
            resources: What a trial occupies.
            hours: Wall-clock limit.
            conduct: How every trial is run.
            implied: Do not run what is proven dead or proven to repeat another trial.

        Raises:
            GrpoError: another process runs this sweep.
        """  # noqa: DOC502 - raised by the record
        with self._record.sole_driver():
            spared = spare(self._record) if implied else {}
            interrupted = self._run_trials(resources, hours, spared, conduct)
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
        self,
        resources: Resources,
        hours: float | None,
        spared: dict[str, Grounds],
        conduct: Conduct,
    ) -> bool:
        """Whether the user stopped it."""
        waker = Waker(self._mirror)
        try:
            with LiveView(self._record, spared=spared) as view:
                told = (view.trial_ended, waker.trial_ended)
                follower = Follower(self._record, spared, told, time.time)
                follower.settle()
                listeners: list[Listener] = [view, waker, follower]
                run_trials(
                    self._record,
                    resources,
                    listeners,
                    hours,
                    conduct=conduct,
                    spared=spared,
                )
        except KeyboardInterrupt:
            return True
        finally:
            waker.start()
        return hours is None and any(s.id not in spared for s in self._record.unfinished())


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
