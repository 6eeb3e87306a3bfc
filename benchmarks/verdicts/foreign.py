"""How often a verdict is right on logs that other people's simulators made, and theirs beside ours.

python benchmarks/verdicts/foreign.py --out DIR [--seeds N] [--venv FOLDER] [--trials FOLDER]

Installs rldoctor and rlprobe, pinned, in a virtual environment of its own, lets their simulators
write runs in the dialects of TRL, verl and AReaL, judges every log as `sweeps diagnose` does, with
the packages themselves and with textbook rules, and prints the scores. Labels: foreign_labels.py,
fixed before any verdict. With --trials, a folder of labelled trials of our own trainer
(injections.py) is written as TRL logs, and everybody is scored on those as well.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

from foreign_judge import Case, Judged, judge_log, read_runs, rival_verdict
from foreign_keys import KEYS
from foreign_tables import Entry, away, confusion, delays, delays_by_label, reliability, scores
from foreign_trials import load_trials, score_trials

PINNED = ("rldoctor==0.2.0", "rlprobe==0.1.0", "numpy==2.4.6", "pyarrow==26.0.1")
HERE = Path(__file__).parent
FOLLOWED = ("trl", "verl", "areal")
"""Dialects whose growing logs are judged as well."""
FOLLOWED_SEEDS = 2
"""Seeds per label of those; healthy labels have three times as many."""
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def main() -> None:
    """Print the tables, and write them with every verdict to --out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for logs and tables")
    parser.add_argument("--seeds", type=int, default=10, help="runs per scenario")
    parser.add_argument("--venv", type=Path, help="the rivals' environment (default: OUT/venv)")
    parser.add_argument("--trials", type=Path, help="labelled trials of our own trainer")
    parser.add_argument("--half", choices=("tuning", "test"), help="only these trials")
    parser.add_argument("--only-trials", action="store_true", help="no simulators")
    parser.add_argument("--processes", type=int, default=1)
    wanted = parser.parse_args()
    wanted.out.mkdir(parents=True, exist_ok=True)
    python = environment(wanted.venv or wanted.out / "venv")
    parts = []
    if not wanted.only_trials:
        parts += cross_simulator(wanted.out, python, wanted.seeds, wanted.processes)
    if wanted.trials is not None:
        judge = lambda folders: ask_rivals(python, wanted.out / "trials.json", folders)  # noqa: E731
        parts.append("## Trials of our own trainer, as TRL logs")
        trials = load_trials(wanted.trials, wanted.half)
        parts.append(score_trials(trials, wanted.trials, wanted.out, judge))
    text = "\n\n".join(parts) + "\n"
    (wanted.out / "tables.md").write_text(text)
    print(text)


def environment(folder: Path) -> Path:
    """Python of an environment that has the rivals; made where there is none."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PINNED], check=True)
    return python


def cross_simulator(out: Path, python: Path, seeds: int, processes: int) -> list[str]:
    """Write the logs, let everybody judge them, and render the tables."""
    logs = out / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    run_script(python, "foreign_write.py", "--out", logs, "--seeds", seeds)
    cases = read_runs(logs / "runs.json")
    simulators = list(dict.fromkeys(case.simulator for case in cases))
    # The config.yaml of `areal+config` says nothing to the rivals.
    folders = [
        logs / simulator / dialect
        for simulator in simulators
        for dialect in ("native", *KEYS)
        if dialect != "areal+config"
    ]
    entries = rival_entries(ask_rivals(python, out / "rivals.json", folders), cases, logs, seeds)
    work = [(case, dialect, logs, seeds) for case in cases for dialect in KEYS]
    with ProcessPoolExecutor(processes) as pool:
        judged = list(pool.map(judge_case, work, chunksize=8))
    followed = []
    for (case, dialect, _, _), one in zip(work, judged, strict=True):
        headline = case.seed < seeds
        entries.append(Entry(case, dialect, "ours", one.ours, headline))
        entries.append(Entry(case, dialect, "textbook", one.naive, headline))
        if one.followed is not None:
            followed.append((case, dialect, one.followed))
    keep(out / "verdicts.json", entries)
    return render(entries, followed)


def judge_case(work: tuple[Case, str, Path, int]) -> Judged:
    """Our verdict and the textbook's on one log."""
    case, dialect, logs, seeds = work
    path = logs / case.simulator / dialect / f"{case.name}.jsonl"
    many = 3 if case.meant.healthy else 1
    grows = dialect in FOLLOWED and case.seed < min(FOLLOWED_SEEDS, seeds) * many
    return judge_log(path, case if grows else None, dialect)


def rival_entries(
    told: dict[str, dict[str, dict]], cases: list[Case], logs: Path, seeds: int
) -> list[Entry]:
    """What the rivals said, by case."""
    known = {(case.simulator, case.name): case for case in cases}
    entries = []
    for rival, verdicts in told.items():
        for path, verdict in verdicts.items():
            simulator, dialect, name = Path(path).relative_to(logs).parts
            case = known[simulator, name.removesuffix(".jsonl")]
            headline = case.seed < seeds
            entries.append(Entry(case, dialect, rival, rival_verdict(rival, verdict), headline))
    return entries


def ask_rivals(python: Path, out: Path, folders: list[Path]) -> dict[str, dict[str, dict]]:
    """Their verdicts on the logs in `folders`, by rival and path."""
    run_script(python, "foreign_rivals.py", "--out", out, *folders)
    return json.loads(out.read_text())


def run_script(python: Path, name: str, *arguments: object) -> None:
    """Run a script beside this one in the rivals' environment."""
    command = [str(python), str(HERE / name), *map(str, arguments)]
    subprocess.run(command, check=True, env=os.environ | ALONE | {"PYTHONPATH": str(HERE)})


def keep(path: Path, entries: list[Entry]) -> None:
    """Every verdict, for a closer look."""
    rows = [
        {"simulator": e.case.simulator, "run": e.case.name, "dialect": e.dialect, "judge": e.who}
        | {"right": e.right, "visible": e.case.visible(e.dialect)}
        | asdict(e.verdict)
        for e in entries
    ]
    path.write_text(json.dumps(rows, indent=0))


def render(entries: list[Entry], followed: list) -> list[str]:
    """Every table."""
    ours = [e for e in entries if e.who == "ours"]
    parts = ["## On logs that the judge's author did not shape", away(entries)]
    parts += ["## By simulator", scores(entries), "## Our verdicts by label"]
    for simulator in dict.fromkeys(e.case.simulator for e in ours):
        for dialect in KEYS:
            chosen = [e for e in ours if (e.case.simulator, e.dialect) == (simulator, dialect)]
            parts += [f"### {simulator}, {dialect}", confusion(chosen)]
    parts += ["## Detection delay (looks every 5 %)", delays(followed)]
    parts += ["### By label, TRL", delays_by_label(followed, "trl")]
    parts += ["## Calibration", reliability(ours)]
    parts.append("## The others' verdicts by label, TRL")
    for who, dialect in (("rldoctor", "trl"), ("rlprobe", "trl"), ("textbook", "trl")):
        for simulator in dict.fromkeys(e.case.simulator for e in ours):
            chosen = [
                e
                for e in entries
                if (e.who, e.dialect, e.case.simulator) == (who, dialect, simulator)
            ]
            parts += [f"### {who} on {simulator}, {dialect}", confusion(chosen)]
    broken = [e for e in ours if e.verdict.error is not None]
    if broken:
        parts.append("## Logs that we could not judge")
        parts += [f"{e.case.name} {e.dialect}: {e.verdict.error}" for e in broken[:10]]
    return parts


if __name__ == "__main__":
    main()
