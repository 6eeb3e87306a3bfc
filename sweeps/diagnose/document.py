"""The document docs/diagnose.md: what is written here, and the tables of the dialects."""
# ruff: noqa: E501 - rows of tables

from sweeps.importers import DIALECTS, SIGNALS
from sweeps.importers.dialects import Dialect, Entry
from sweeps.importers.signals import AUXILIARY

_INTRODUCTION = """# What happened in my run? `sweeps diagnose`

    sweeps diagnose outputs/checkpoint-500/trainer_state.json    # TRL
    sweeps diagnose logs/verl.jsonl logs/areal.log               # several: one row each
    sweeps diagnose runs/                                        # every log in a folder
    sweeps diagnose runs:/3f2a... experiments:/grpo              # MLflow (MLFLOW_TRACKING_URI)
    sweeps diagnose run.jsonl --json                             # for programs
    sweeps diagnose run.jsonl --watch                            # a guard beside a training run

The verdicts are those of our own trials, with the same symptoms: [verdicts.md](verdicts.md) explains
each, its look-alikes and its fix. One path prints a whole verdict: the sentence, its evidence, which
signals were found under which keys, which are lacking and what cannot be told without them, and what
was odd about the log. Several paths or a folder print a row each. Nothing of the log is changed.

| option | what it does |
| --- | --- |
| `--format NAME` | whose log it is (`areal`, `trl`, `verl`, `sweeps`, `plain`) instead of finding out |
| `--map SIGNAL=KEY` | read a signal from a key of your own; repeatable |
| `--set KEY=VALUE` | a setting that the log does not state, under AReaL's name; repeatable |
| `--fail-on` | exit with 1 if a run is `unhealthy`, or is not known to be healthy (`inconclusive`) |
| `--json` | a list with an entry per log |
| `--verbose` | also list the keys that nobody knows |
| `--watch` | follow one log; `--interval`, `--until-idle`, `--alarm` |

Exit codes: 0 done, 1 the gate or the guard, 2 a log could not be read (the others are judged all the
same), 3 interrupted.

## A guard beside a training run

    sweeps diagnose run.jsonl --watch --until-idle 3600 || scancel "$JOB"

It looks every 30 s (`--interval`), prints the verdict whenever that changes, and exits with 1 as soon
as two looks in a row agree on a diagnosis that does not heal by itself; never because of a slow
start. `--alarm aggressive` also counts runs that merely stand still. It exits with 0 when the log
says that training ended (TRL's summary, AReaL's last step, a finished MLflow run), or after
`--until-idle` seconds without anything new. JSON lines and console logs are read on from where the
last look ended, also into the file that takes their place when the log is rotated or truncated; other
forms are read anew.

## What is read

| form | how it is told |
| --- | --- |
| JSON lines | one object per line, nested or flat; a `config` in it is read as settings |
| `trainer_state.json`, a JSON list | `log_history`, or the list itself |
| console logs | AReaL's tables, verl's `step:N - key:value`, TRL's printed dictionaries (those have no step and are counted) |
| CSV | a header with the keys of a dialect or the signals' own names; Weights & Biases' export |
| TensorBoard | event files, a run's folder; the Trainer's arguments in it are read as settings |
| MLflow | `runs:/ID`, an id, `experiments:/NAME`; parameters are read as settings |
| samples | a line per sample with `reward` or `score`, and `uid`, `group`, `prompt` or `input` (verl's `trainer.rollout_data_dir`); lists of rewards per group in a step's record |
| our own | a sweep's folder, a trial's file |

The dialect is that of which most keys are known; the report says which and by what it was told. Keys
may stand below a scope (`train/`, an experiment's name), but not below one of an evaluation or a
critic.

## Logs that are not in order

| what | what is done |
| --- | --- |
| a step is logged by several lines (evaluation apart) | they are merged |
| a step is logged twice | the last value counts, and the number is told |
| steps are shuffled | they are sorted, and the number is told |
| the counter falls back and goes on (a resume) | earlier values from that step on are replaced, and the step is told |
| steps are missing | told; nothing is filled in |
| no step counter | records are counted from 1, and that is told |
| the last line is cut off | left out, and told; `--watch` waits for its rest |
| a few broken lines (a crash, two writers) | left out, counted, the first one named; more than 1 % is an error |
| NaN and infinity, as tokens or text | evidence, kept; `null` is NaN in verl's log and nothing elsewhere |
| numbers as text, tensors as text, lists | read; of several numbers the mean, of a `_max` or `_min` the extreme |
| UTF-8 or UTF-16 with or without a mark | read; other bytes as Latin-1, and told |
| keys of two dialects | those of the better known one are read, the others are told |
| a text where a number belongs, a broken step | an error with path, line, key and what was wanted |
| a file of any size | read in a stream; only numbers of known keys are kept, 12 bytes each |

A file in a folder that cannot be read is a row with its error, and the exit code is 2. Files that hold
no log at all are passed over.
"""


def render_document() -> str:
    """The document docs/diagnose.md."""
    parts = [_INTRODUCTION, _signals()]
    parts += [_dialect(dialect) for dialect in DIALECTS.values() if dialect.name != "plain"]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _signals() -> str:
    lines = [
        "## Signals",
        "",
        "Names for `--map`, for CSV headers and in `--json`. `component.NAME` is the mean of one reward function.",
        "",
        "| signal | meaning | without it nobody can tell |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| `{name}` | {signal.meaning} | {signal.without} |" for name, signal in SIGNALS.items()
    ]
    return "\n".join(lines)


def _dialect(dialect: Dialect) -> str:
    lines = [
        f"## {dialect.title} (`--format {dialect.name}`)",
        "",
        f"*How to log:* {dialect.how}.",
        "",
        f"*Keys read in:* {dialect.source}.",
    ]
    if dialect.name != "sweeps":
        lines += ["", "| key | signal | remark |", "| --- | --- | --- |"]
        lines += [_line(entry) for entry in dialect.entries]
        lines += [_line(entry) for entry in dialect.stated]
    return "\n".join([*lines, "", *(f"* {caveat}" for caveat in dialect.caveats)])


def _line(entry: Entry) -> str:
    signal = f"`{entry.signal}`"
    if entry.signal.startswith(AUXILIARY):
        signal = "serves to derive others"
    return f"| `{entry.key}` | {signal} | {entry.note} |"
