"""The command line: parse, call, print, exit code.

Exit codes: 0 done; 1 the sweep ran and a trial failed or the gate (`--fail-on`) was not met; 2 bad input;
3 interrupted, run the same command again to resume.
"""

import json
import os
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from grpo_core.errors import ConfigError, GrpoError
from sweeps.plan import Plan, plan
from sweeps.record import SweepHeader, SweepRecord
from sweeps.space import Space, load_space
from sweeps.workspace import default_storage, workspace

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Which setting broke my GRPO run? Sweeps of short diagnostic runs, judged one by one.",
)

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 3

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
    """Entry point: errors that a user can put right become a message and exit code 2."""
    try:
        app()
    except GrpoError as error:
        problems = error.problems if isinstance(error, ConfigError) else [str(error)]
        for problem in problems:
            print(f"error: {problem}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


@app.command("plan")
def plan_command(file: SpacePath, overrides: Overrides = None, *, as_json: AsJson = False) -> None:
    """What would run: configurations, seeds, trials; nothing is started."""
    planned = _plan(file, overrides)
    if as_json:
        print(json.dumps(_plan_json(planned), indent=1))
        return
    space = planned.space
    for notice in space.notices:
        print(f"note: {notice}")
    print(f"{space.name}: {space.question}" if space.question else space.name)
    for axis in space.axes:
        print(f"  {axis.name}: {', '.join(level.name for level in axis.levels)}")
    print(_plan_counts(planned))
    for name in dict.fromkeys(trial.configuration for trial in planned.trials):
        print(f"  {name}")


@app.command("run")
def run_command(  # noqa: PLR0913 - one parameter per documented option
    file: SpacePath,
    overrides: Overrides = None,
    storage: Storage = None,
    name: Annotated[str | None, typer.Option(help="Run under another name.")] = None,
    *,
    resume: Annotated[bool, typer.Option("--resume", help="Insist on an existing sweep.")] = False,
    max_concurrent: Annotated[int | None, typer.Option(min=1, help="Most trials at once.")] = None,
    cpus_per_trial: Annotated[float, typer.Option(min=0.01, help="CPU cores of a trial.")] = 1.0,
    gpus_per_trial: Annotated[float, typer.Option(min=0.0, help="GPUs; fractions allowed.")] = 0.0,
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
    planned = _plan(file, overrides)
    from sweeps.environment import prepare_ray
    from sweeps.tracking import Mirror, MlflowTracker, check_store

    store = check_store(_store())
    record = _open_record(planned, storage, name, resume=resume)
    prepare_ray()
    from sweeps.orchestrate import Resources, run_trials

    resources = Resources(cpus_per_trial, gpus_per_trial, max_concurrent)
    notices = Console(stderr=True, highlight=False)
    for notice in planned.space.notices:
        notices.print(f"note: {notice}", markup=False, soft_wrap=True)
    notices.print(f"{_plan_counts(planned)} -> {record.folder}", markup=False, soft_wrap=True)
    mirror = Mirror(record, MlflowTracker(store))
    interrupted = _run(record, resources, mirror, planned.space, run_trials)
    code = _conclude(
        record, mirror, started, interrupted=interrupted, fail_on=fail_on, as_json=as_json
    )
    raise typer.Exit(code)


@app.command("results")
def results_command(sweep: SweepName, storage: Storage = None, *, as_json: AsJson = False) -> None:
    """The comparison table of a sweep, also while it runs."""
    from sweeps.results import load_results

    record = _find_record(sweep, storage)
    results = load_results(record)
    if as_json:
        print(json.dumps(results.to_json(), indent=1))
        return
    _print_results(results, _console())
    print(f"report   {record.report_folder}")
    for line in _where_to_look(record):
        print(line)


@app.command("explain")
def explain_command(
    key: Annotated[
        str | None, typer.Argument(help="A dotted key; without one, all are listed.")
    ] = None,
) -> None:
    """What a setting does, where it differs from AReaL, which verdicts point to it."""
    from sweeps.explain import explain, list_keys

    print(list_keys() if key is None else explain(key))


@app.command("promote")
def promote_command(
    sweep: SweepName,
    base: Annotated[Path, typer.Option(help="Your AReaL YAML file.")],
    out: Annotated[Path, typer.Option(help="Where to write the promoted file.")],
    storage: Storage = None,
    config: Annotated[
        str | None, typer.Option(help="Hash or name of a configuration [default: the recommended].")
    ] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """The recommended configuration as a change to your own AReaL file, and as overrides."""
    from sweeps.promote import promote
    from sweeps.results import load_results

    record = _find_record(sweep, storage)
    results = load_results(record)
    choice = _choose(results, config)
    if out.exists() and not force:
        raise ConfigError([f"--out: {out} exists; --force overwrites it"])
    promotion = promote(results, choice, base, _provenance(record, choice))
    _write_new(out, promotion.text)
    for notice in promotion.notices:
        print(f"note: {notice}", file=sys.stderr)
    print(f"wrote {out}: {choice.name}, {len(promotion.changes)} settings changed")
    for change in promotion.changes:
        print(f"  {change.key}: {change.before} -> {change.value}")
    print("as AReaL command-line overrides:")
    print("  " + " ".join(_quoted(override) for override in promotion.overrides))


def _plan(file: Path, overrides: list[str] | None) -> Plan:
    return plan(load_space(file, tuple(overrides or ())))


def _plan_counts(planned: Plan) -> str:
    space = planned.space
    steps = sum(trial.config["total_train_steps"] for trial in planned.trials)
    text = (
        f"{len(space.cells)} configurations x {len(space.seeds)} seeds = {len(planned.trials)} trials, "
        f"{steps} steps"
    )
    left_out = [
        (space.excluded, "combinations excluded"),
        (space.duplicates, "combinations equal to another"),
        (len(planned.not_run), "trials beyond budget.trials"),
    ]
    extra = [f"{count} {what}" for count, what in left_out if count]
    return f"{text} ({', '.join(extra)})" if extra else text


def _plan_json(planned: Plan) -> dict[str, Any]:
    space = planned.space
    return {
        "sweep": space.name,
        "question": space.question,
        "content": planned.content,
        "configurations": len(space.cells),
        "excluded": space.excluded,
        "duplicates": space.duplicates,
        "seeds": list(space.seeds),
        "notices": list(space.notices),
        "trials": [trial.to_json() for trial in planned.trials],
        "not_run": list(planned.not_run),
    }


def _open_record(
    planned: Plan, storage: Path | None, name: str | None, *, resume: bool
) -> SweepRecord:
    """The sweep's folder: a new one, or an existing one of equal content."""
    space = planned.space
    name = name or space.name
    folder = (storage or default_storage()) / name
    record = SweepRecord(folder)
    if record.exists():
        if record.header().content != planned.content:
            raise ConfigError(
                [
                    f"sweep {name!r} exists in {folder.parent} with another content; give this one "
                    "another name (--name), or another --storage"
                ]
            )
        return record
    if resume:
        raise ConfigError([f"--resume: there is no sweep {name!r} in {folder.parent}"])
    _create(record, planned, name)
    return record


def _create(record: SweepRecord, planned: Plan, name: str) -> None:
    space = planned.space
    header = SweepHeader(
        name=name,
        content=planned.content,
        question=space.question,
        trials=planned.trials,
        not_run=planned.not_run,
        source=space.source,
        version=_version(),
        created=time.time(),
        base={} if space.base is None else space.base.model_dump(),
    )
    try:
        record.create(header)
    except OSError as error:
        reason = f"{record.folder}: cannot be written: {error.strerror}"
        raise ConfigError([f"--storage: {reason}"]) from error


def _find_record(sweep: str, storage: Path | None) -> SweepRecord:
    folders = [(storage or default_storage()) / sweep, Path(sweep)]
    for folder in folders:
        record = SweepRecord(folder)
        if record.exists():
            return record
    parent = storage or default_storage()
    known = (
        sorted(path.parent.name for path in parent.glob("*/sweep.json")) if parent.exists() else []
    )
    hint = f"; there are {', '.join(known)}" if known else ""
    raise ConfigError([f"sweep {sweep!r} is not in {parent}{hint}"])


def _run(record: SweepRecord, resources: Any, mirror: Any, space: Space, run_trials: Any) -> bool:
    """Run what is left; whether the user stopped it."""
    from sweeps.live import LiveView

    waker = _Waker(mirror)
    try:
        with LiveView(record) as view:
            run_trials(record, resources, [view, waker], space.budget.hours)
    except KeyboardInterrupt:
        return True
    finally:
        waker.start()
    return _unfinished(record) > 0 and space.budget.hours is None


def _unfinished(record: SweepRecord) -> int:
    header = record.header()
    left_out = set(header.not_run)
    return sum(s.id not in left_out and record.end(s.id) is None for s in header.trials)


class _Waker:
    """Tells the mirror that the record has grown.

    MLflow costs seconds of CPU to load and to make its database; the first result comes before it.
    """

    def __init__(self, mirror: Any) -> None:
        self._mirror = mirror
        self._started = False

    def trial_started(self, trial_id: str) -> None:
        """Nothing is in the record yet."""

    def trial_advanced(self, trial_id: str, steps: list[Any]) -> None:
        """New steps."""
        if self._started:
            self._mirror.wake()

    def trial_ended(self, trial_id: str, end: Any) -> None:
        """A trial's end."""
        self.start()
        self._mirror.wake()

    def start(self) -> None:
        """Have the mirror begin, once."""
        if not self._started:
            self._started = True
            self._mirror.start()


def _conclude(
    record: SweepRecord,
    mirror: Any,
    started: float,
    *,
    interrupted: bool,
    fail_on: str,
    as_json: bool,
) -> int:
    from sweeps.report.tables import render_markdown
    from sweeps.report.write import write_report
    from sweeps.results import load_results

    results = load_results(record)
    folder = write_report(record, results)
    best = results.recommended
    mirror.finish(render_markdown(results), None if best is None else best.name)
    console = _console(stderr=as_json)
    _print_results(results, console)
    status = mirror.close(timeout=120.0)
    say = lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True)  # noqa: E731
    say(f"report   {folder}")
    for line in _where_to_look(record, status):
        say(line)
    say(f"took {time.monotonic() - started:.0f} s")
    if as_json:
        print(json.dumps(results.to_json(), indent=1))
    if interrupted:
        say(f"{_unfinished(record)} trials are unfinished; the same command goes on with them")
        return INTERRUPTED
    sick = any(c.verdict.outcome in ("unhealthy", "edge") for c in results.configurations)
    gate = {"never": False, "unhealthy": sick, "no-recommendation": best is None}[fail_on]
    return FAILED if gate or results.failed else 0


def _store() -> str | None:
    """MLflow's address: the user's, or a database in the workspace."""
    named = os.environ.get("MLFLOW_TRACKING_URI")
    return named or f"sqlite:///{workspace() / 'mlflow.db'}"


def _where_to_look(record: SweepRecord, status: Any | None = None) -> list[str]:
    """Lines on MLflow: the command, the link, and what could not be delivered."""
    from sweeps.tracking import mirrored_at, mlflow_command, ui_address, view_link
    from sweeps.tracking.translate import sweep_page

    lines = []
    if status is not None and status.error is not None:
        lines.append(
            f"MLflow: {status.pending} trials are not delivered yet ({status.error}); the record has "
            "everything, the same command delivers it later"
        )
    place = mirrored_at(record)
    if place is None:
        return lines
    command = mlflow_command(place.uri)
    if command is not None:
        lines.append(f"MLflow   {command}")
    for view in sweep_page(record.header()).views:
        link = view_link(ui_address(place.uri), place.experiment, view)
        lines.append(f"         {view.name}: {link}")
    return lines


def _print_results(results: Any, console: Console) -> None:
    from sweeps.report.tables import render_table

    console.print(render_table(results))
    console.print(f"recommended: {results.reason}", markup=False, highlight=False, soft_wrap=True)
    for trial in results.failed:
        line = f"failed: {trial.spec.name}: {trial.end.error}"
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    if results.not_run:
        names = ", ".join(spec.name for spec in results.not_run[:10])
        more = f" and {len(results.not_run) - 10} more" if len(results.not_run) > 10 else ""
        console.print(f"not run: {names}{more}", markup=False, highlight=False, soft_wrap=True)


def _console(*, stderr: bool = False) -> Console:
    """Wide enough for the table where the output is no terminal."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=140)


def _choose(results: Any, wanted: str | None) -> Any:
    """The configuration to promote."""
    if wanted is None:
        if results.recommended is None:
            raise ConfigError([f"nothing to promote: {results.reason}; --config names one"])
        return results.recommended
    for configuration in results.configurations:
        if wanted in (configuration.config_hash, configuration.name):
            return configuration
    names = ", ".join(f"{c.config_hash} ({c.name})" for c in results.configurations)
    raise ConfigError([f"--config: got {wanted!r}, wanted one of {names}"])


def _provenance(record: SweepRecord, choice: Any) -> dict[str, str]:
    header = record.header()
    verdict = choice.verdict
    return {
        "question": header.question or "(none)",
        "configuration": f"{choice.name} (hash {choice.config_hash})",
        "verdict": f"{verdict.outcome}, {verdict.healthy} of {verdict.seeds} seeds healthy",
        "seeds": ", ".join(str(trial.spec.seed) for trial in choice.trials),
        "grpo-sweeps": f"version {header.version}, sweep content {header.content}",
    }


def _write_new(out: Path, text: str) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_name(f".{out.name}.partial")
        partial.write_text(text)
        partial.replace(out)
    except OSError as error:
        raise ConfigError([f"--out: {out}: cannot be written: {error.strerror}"]) from error


def _quoted(override: str) -> str:
    plain = all(character.isalnum() or character in "+=._-" for character in override)
    return override if plain else f"'{override}'"


def _version() -> str:
    try:
        return version("grpo-sweeps")
    except PackageNotFoundError:
        return "unknown"
