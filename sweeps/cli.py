"""The command line: parse, call, print, exit code.

Exit codes: 0 done; 1 the sweep ran and a trial failed or the gate (`--fail-on`) was not met; 2 bad
input; 3 interrupted, run the same command again to resume.
"""

import json
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from grpo_core.errors import ConfigError, GrpoError
from sweeps.diagnose.command import diagnose_command
from sweeps.lint.command import lint_command
from sweeps.plan import Plan, most_cells, plan, trial_of
from sweeps.probe.command import probe_command
from sweeps.record import SweepRecord
from sweeps.replay.command import replay_command
from sweeps.replay.spared import count_spared, ground_trials
from sweeps.shelf.command import (
    cancel_command,
    clean_command,
    list_command,
    status_command,
    sync_command,
)
from sweeps.space import load_space
from sweeps.storage import find_sweep, open_sweep
from sweeps.workspace import tracking_store

if TYPE_CHECKING:
    from sweeps.search.cost import Cost

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Which setting broke my GRPO run? Sweeps of short diagnostic runs, judged one by one.",
)

app.command("diagnose")(diagnose_command)
app.command("lint")(lint_command)
app.command("replay")(replay_command)
app.command("probe")(probe_command)
app.command("list")(list_command)
app.command("status")(status_command)
app.command("cancel")(cancel_command)
app.command("sync")(sync_command)
app.command("clean")(clean_command)

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 3
BY_CTRL_C = 130
"""Exit code that typer makes of a keyboard interrupt."""

SpacePath = Annotated[Path, typer.Argument(help="A search-space file (search_spaces/*.yaml).")]
SweepName = Annotated[str, typer.Argument(help="Name of a sweep, or its folder.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Lay a value over the base; repeatable."),
]
Storage = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the sweeps' records [default: ./sweep_results; in a Ray job ~/grpo-sweeps]."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """Entry point: errors that a user can put right become a message and exit code 2.

    Raises:
        SystemExit: with the documented exit codes.
    """
    try:
        app()
    except GrpoError as error:
        problems = error.problems if isinstance(error, ConfigError) else (str(error),)
        for problem in problems:
            print(f"error: {problem}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except SystemExit as end:
        if end.code != BY_CTRL_C:
            raise
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


@app.command("plan")
def plan_command(
    file: SpacePath,
    overrides: Overrides = None,
    *,
    probe: Annotated[
        bool, typer.Option("--probe", help="Train a few steps of the largest cell; say the cost.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What would run: configurations, seeds, trials; nothing is started."""
    planned = _plan(file, overrides)
    grounds = ground_trials(planned.trials) if planned.space.implied else {}
    cost = _cost(planned, grounds.keys()) if probe else None
    if as_json:
        implied = {trial: reason.to_json() for trial, reason in grounds.items()}
        extra = {"implied": implied} | ({} if cost is None else {"cost": cost.to_json()})
        print(json.dumps(planned.to_json() | extra, indent=1))
        return
    space = planned.space
    for notice in space.notices:
        print(f"note: {notice}")
    print(f"{space.name}: {space.question}" if space.question else space.name)
    for axis in space.axes:
        print(f"  {axis.name}: {', '.join(level.name for level in axis.levels)}")
    if space.left_out:
        print(f"  {space.design.kind}: {space.left_out}")
    print(planned.counts + count_spared(grounds))
    if cost is not None:
        print(f"measured {cost.words}")
    reasons = {trial.configuration: grounds.get(trial.id) for trial in planned.trials}
    for name, reason in reasons.items():
        print(f"  {name}" if reason is None else f"  {name} (implied: {reason.words})")


@app.command("run")
def run_command(  # noqa: PLR0913 - one parameter per documented option
    file: SpacePath,
    overrides: Overrides = None,
    storage: Storage = None,
    name: Annotated[str | None, typer.Option(help="Run under another name.")] = None,
    *,
    resume: Annotated[bool, typer.Option("--resume", help="Insist on an existing sweep.")] = False,
    keep_rollouts: Annotated[
        bool, typer.Option("--record", help="Keep every trial's batches for `sweeps replay`.")
    ] = False,
    implied: Annotated[
        bool | None,
        typer.Option(
            "--implied/--no-implied",
            help="Leave out what is proven dead, or proven to repeat another cell, and record what "
            "follows [default: as the file says, else left out].",
        ),
    ] = None,
    racing: Annotated[
        bool | None,
        typer.Option(
            "--racing/--no-racing",
            help="Give cells that are certainly broken, or cannot win, no further seeds [default: "
            "as the file says, else so].",
        ),
    ] = None,
    stop: Annotated[
        Literal["off", "safe", "aggressive"] | None,
        typer.Option(
            help="End a trial early at a critical diagnosis that two looks in a row agree on "
            "[default: as the file says, else safe]."
        ),
    ] = None,
    max_concurrent: Annotated[int | None, typer.Option(min=1, help="Most trials at once.")] = None,
    cpus_per_trial: Annotated[float, typer.Option(min=0.01, help="CPU cores of a trial.")] = 1.0,
    gpus_per_trial: Annotated[float, typer.Option(min=0.0, help="GPUs; fractions allowed.")] = 0.0,
    stuck_after: Annotated[
        float,
        typer.Option(min=1.0, help="Seconds without a report after which a trial is restarted."),
    ] = 900.0,
    code: Annotated[
        bool,
        typer.Option("--code/--no-code", help="Let configurations name a function to import."),
    ] = True,
    fail_on: Annotated[
        Literal["never", "unhealthy", "no-recommendation"],
        typer.Option(
            help="Exit with 1 if any configuration is unhealthy, or none can be recommended."
        ),
    ] = "never",
    as_json: AsJson = False,
) -> None:
    """Run a sweep, or go on with it: live table, verdicts, recommendation."""
    started = time.monotonic()
    planned = _plan(file, overrides, allow_code=code)
    from sweeps.tracking import MlflowTracker, check_store

    store = check_store(tracking_store())
    record = open_sweep(planned, storage, name, resume=resume)
    space = planned.space
    implied = space.implied if implied is None else implied
    _announce(planned, record.folder, implied=implied)
    from sweeps.environment import prepare_ray

    prepare_ray()
    from sweeps.display import say, wide_console
    from sweeps.orchestrate import Conduct, Resources
    from sweeps.session import Savings, Session

    console = wide_console(stderr=as_json)
    resources = Resources(cpus_per_trial, gpus_per_trial, max_concurrent)
    outcome = Session(record, MlflowTracker(store), console).run(
        space,
        resources,
        Conduct(keep_rollouts, space.stop if stop is None else stop, stuck_after),
        Savings(implied, space.racing if racing is None else racing),
    )
    say(console, f"took {time.monotonic() - started:.0f} s")
    if as_json:
        print(json.dumps(outcome.results.to_json(), indent=1))
    if outcome.interrupted:
        say(console, _what_is_left(len(record.unfinished())))
        sys.exit(INTERRUPTED)
    if not outcome.passes(fail_on):
        sys.exit(FAILED)


@app.command("results")
def results_command(sweep: SweepName, storage: Storage = None, *, as_json: AsJson = False) -> None:
    """The comparison table of a sweep, also while it runs."""
    record = find_sweep(sweep, storage)
    from sweeps.results import load_results

    results = load_results(record)
    if as_json:
        print(json.dumps(results.to_json(), indent=1))
        return
    from sweeps.display import print_results, where_to_look, wide_console

    print_results(results, wide_console())
    print(f"report   {record.report_folder}")
    for line in where_to_look(record):
        print(line)


@app.command("explain")
def explain_command(
    key: Annotated[
        str | None, typer.Argument(help="A dotted key; without one, all are listed.")
    ] = None,
) -> None:
    """What a setting does, where it differs from AReaL, which verdicts and rules concern it."""
    from sweeps.explain import explain, list_keys
    from sweeps.lint.render import render_rules_of

    if key is None:
        print(list_keys())
        return
    print(*filter(None, (explain(key), render_rules_of(key))), sep="\n\n")


@app.command("promote")
def promote_command(
    sweep: SweepName,
    base: Annotated[Path, typer.Option(help="Your AReaL YAML file.")],
    out: Annotated[Path, typer.Option(help="Where to write the promoted file.")],
    storage: Storage = None,
    *,
    config: Annotated[
        str | None, typer.Option(help="Hash or name of a configuration [default: the recommended].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """The recommended configuration as a change to your own AReaL file, and as overrides."""
    record = find_sweep(sweep, storage)
    from sweeps.promote import choose, command_line, promote, provenance_of, write_promotion
    from sweeps.results import load_results

    results = load_results(record)
    choice = choose(results, config)
    promotion = promote(results, choice, base, provenance_of(record.header(), choice))
    write_promotion(promotion, out, overwrite=force)
    for notice in promotion.notices:
        print(f"note: {notice}", file=sys.stderr)
    print(f"wrote {out}: {choice.name}, {len(promotion.changes)} settings changed")
    for change in promotion.changes:
        print(f"  {change.key}: {change.before} -> {change.after}")
    print("as AReaL command-line overrides:")
    print(f"  {command_line(promotion)}")


@app.command("verify")
def verify_command(
    sweep: SweepName,
    storage: Storage = None,
    *,
    config: Annotated[
        str | None, typer.Option(help="Hash or name of a configuration [default: the recommended].")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Fresh seeds of either.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Run a sweep's suggestion against its base on fresh seeds; exits with 1 unless it holds."""
    from sweeps.search.verify import check
    from sweeps.tracking import MlflowTracker, check_store

    planned, record = _verification(find_sweep(sweep, storage), config, seeds)
    store = check_store(tracking_store())
    _announce(planned, record.folder, implied=False)
    from sweeps.environment import prepare_ray

    prepare_ray()
    from sweeps.display import say, wide_console
    from sweeps.orchestrate import Resources
    from sweeps.session import Savings, Session

    console = wide_console(stderr=as_json)
    outcome = Session(record, MlflowTracker(store), console).run(
        planned.space, Resources(), savings=Savings(implied=False, racing=False)
    )
    if outcome.interrupted:
        say(console, _what_is_left(len(record.unfinished())))
        sys.exit(INTERRUPTED)
    found = check(outcome.results)
    say(console, "\n".join((*found.lines, found.conclusion)))
    if as_json:
        print(json.dumps(found.to_json(), indent=1))
    if not found.verified:
        sys.exit(FAILED)


def _verification(record: SweepRecord, config: str | None, seeds: int) -> tuple[Plan, SweepRecord]:
    """The plan that verifies a configuration of a sweep, and its own record beside it."""
    from sweeps.promote import choose
    from sweeps.results import load_results
    from sweeps.search.verify import plan_verification

    choice = choose(load_results(record), config)
    planned = plan_verification(record.header(), choice, seeds)
    return planned, open_sweep(planned, record.folder.parent, None, resume=False)


def _what_is_left(trials: int) -> str:
    if trials:
        return f"{trials} trials are unfinished; the same command goes on with them"
    return "the search is not at its end; the same command goes on with it"


def _announce(planned: Plan, folder: Path, *, implied: bool) -> None:
    notes = [f"note: {notice}" for notice in planned.space.notices]
    spared = count_spared(ground_trials(planned.trials)) if implied else ""
    print(*notes, f"{planned.counts}{spared} -> {folder}", sep="\n", file=sys.stderr)


def _cost(planned: Plan, spared: Collection[str]) -> "Cost | None":
    """What the planned trials cost; of a search, as if it took the largest of its candidates."""
    from sweeps.search.cost import estimate

    space = planned.space
    trials = [trial_of(space, cell, seed) for cell in space.cells for seed in space.seeds]
    if space.design.searches:
        trials = trials[: most_cells(space) * len(space.seeds)]
    left_out = {*planned.not_run, *spared}
    left = [trial for trial in trials if trial.id not in left_out]
    return estimate(left, notify=lambda line: print(line, file=sys.stderr)) if left else None


def _plan(file: Path, overrides: list[str] | None, *, allow_code: bool = True) -> Plan:
    """What the file asks for.

    Raises:
        ConfigError: it is no search space, or its trials import functions and may not.
    """
    planned = plan(load_space(file, tuple(overrides or ())))
    named = {trial.config["task"]["reward_fn"] for trial in planned.trials} - {None}
    if named and not allow_code:
        raise ConfigError(
            [f"task.reward_fn={name}: --no-code forbids it" for name in sorted(named)]
        )
    return planned
