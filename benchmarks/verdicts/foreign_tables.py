"""Scores as Markdown tables."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from foreign_judge import Case, Followed, Verdict

Z = 1.96
"""Normal quantile of the 95 % intervals."""
BINS = (0.0, 0.6, 0.7, 0.8, 0.9, 0.96, 1.01)
"""Edges of the stated confidence."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One verdict on one log."""

    case: Case
    dialect: str
    who: str
    verdict: Verdict
    headline: bool
    """Counts in the score; further healthy runs only count for the false alarms."""

    @property
    def right(self) -> bool:
        """The first verdict is what the label means."""
        return self.verdict.right(self.case, self.dialect)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The Wilson 95 % interval of a share."""
    if count == 0:
        return 0.0, 1.0
    share, square = hits / count, Z * Z
    middle = (share + square / (2 * count)) / (1 + square / count)
    reach = math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    reach *= Z / (1 + square / count)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def share(hits: Iterable[bool]) -> str:
    """`93.1 % (88.0-96.1, 121/130)`."""
    listed = list(hits)
    if not listed:
        return "-"
    low, high = wilson(sum(listed), len(listed))
    return (
        f"{sum(listed) / len(listed):.1%} ({100 * low:.0f}-{100 * high:.0f}, "
        f"{sum(listed)}/{len(listed)})"
    )


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(heading) + " |", "| " + " | ".join("---" for _ in heading) + " |"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def scores(entries: list[Entry]) -> str:
    """A row per simulator, dialect and judge."""
    keys = dict.fromkeys((e.case.simulator, e.dialect, e.who) for e in entries)
    rows = []
    for key in sorted(keys):
        chosen = [e for e in entries if (e.case.simulator, e.dialect, e.who) == key]
        rows.append([*key, *_row(chosen)])
    return table(("simulator", "dialect", "judge", *_COLUMNS), rows)


_COLUMNS = (
    "first verdict right (visible)",
    "all cases",
    "faults right (visible)",
    "named at all (visible faults)",
    "healthy runs alarmed",
    "critical",
    "inconclusive",
)


def _row(entries: list[Entry]) -> list[str]:
    counted = [e for e in entries if e.headline]
    visible = [e for e in counted if e.case.visible(e.dialect)]
    faults = [e for e in visible if not e.case.meant.healthy]
    healthy = [e for e in entries if e.case.meant.healthy]
    return [
        share(e.right for e in visible),
        share(e.right for e in counted),
        share(e.right for e in faults),
        share(e.verdict.names_it(e.case, e.dialect) for e in faults),
        share(e.verdict.alarm for e in healthy),
        share(e.verdict.alarm and e.verdict.critical for e in healthy),
        share(e.verdict.word == "inconclusive" for e in counted),
    ]


def away(entries: list[Entry]) -> str:
    """Every judge on logs that its author did not shape: a row per dialect and judge."""
    rows = []
    foreign = [e for e in entries if e.who != e.case.simulator]
    for dialect, who in sorted(dict.fromkeys((e.dialect, e.who) for e in foreign)):
        chosen = [e for e in foreign if (e.dialect, e.who) == (dialect, who)]
        rows.append([who, dialect, *_row(chosen)])
    return table(("judge", "dialect", *_COLUMNS), rows)


def confusion(entries: list[Entry]) -> str:
    """Label -> verdicts with counts; * marks those that are right."""
    rows = []
    for label in dict.fromkeys(e.case.label for e in entries):
        chosen = [e for e in entries if e.case.label == label]
        words = Counter((e.verdict.word, e.right) for e in chosen)
        said = ", ".join(
            f"{word}{'*' if right else ''} {count}"
            for (word, right), count in sorted(words.items(), key=lambda item: -item[1])
        )
        seen = "" if chosen[0].case.visible(chosen[0].dialect) else " (not visible)"
        rows.append((label + seen, f"{sum(e.right for e in chosen)}/{len(chosen)}", said))
    return table(("label", "right", "verdicts (* right)"), rows)


def delays(followed: list[tuple[Case, str, Followed]]) -> str:
    """How soon, per simulator and dialect, over visible faults; and healthy runs stopped."""
    heading = (
        "simulator",
        "dialect",
        "right at some look",
        "median delay, steps (share of the run)",
        "Alarm went off",
        "with a right symptom",
        "before the onset",
        "its median delay (share)",
        "steps after onset saved, all faults",
        "healthy runs alarmed",
    )
    rows = []
    for key in sorted(dict.fromkeys((case.simulator, dialect) for case, dialect, _ in followed)):
        chosen = [
            (case, seen) for case, dialect, seen in followed if (case.simulator, dialect) == key
        ]
        rows.append([*key, *_delay_row(chosen, key[1])])
    return table(heading, rows)


def _delay_row(chosen: list[tuple[Case, Followed]], dialect: str) -> list[str]:
    faults = [
        (case, seen)
        for case, seen in chosen
        if case.visible(dialect) and not any(w.startswith("healthy") for w in case.meant.accepted)
    ]
    healthy = [seen for case, seen in chosen if case.meant.healthy]
    found = [(case, seen.first_right) for case, seen in faults if seen.first_right is not None]
    fired = [(case, seen) for case, seen in faults if seen.alarmed is not None]
    late = [(case, seen.alarmed) for case, seen in fired if (seen.alarmed or 0) >= case.onset]
    saved = [
        (case.steps - max(seen.alarmed, case.onset)) / (case.steps - case.onset + 1)
        if seen.alarmed is not None and seen.alarmed >= case.onset
        else 0.0
        for case, seen in faults
    ]
    return [
        share(seen.first_right is not None for _, seen in faults),
        _typical(found),
        share(seen.alarmed is not None for _, seen in faults),
        share(seen.symptom in case.meant.accepted for case, seen in fired),
        share((seen.alarmed or 0) < case.onset for case, seen in fired),
        _typical(late),
        f"{sum(saved) / len(saved):.0%}" if saved else "-",
        share(seen.alarmed is not None for seen in healthy),
    ]


def _typical(found: Sequence[tuple[Case, int | None]]) -> str:
    spans = [((step or 0) - case.onset, case.steps) for case, step in found]
    if not spans:
        return "-"
    steps = median(span for span, _ in spans)
    return f"{steps:.0f} ({median(span / whole for span, whole in spans):.0%})"


def delays_by_label(followed: list[tuple[Case, str, Followed]], dialect: str) -> str:
    """Per label, in one dialect: first right look and Alarm, in steps after the onset."""
    chosen = [(case, seen) for case, one, seen in followed if one == dialect]
    rows = []
    for key in dict.fromkeys((case.simulator, case.label) for case, _ in chosen):
        runs = [(case, seen) for case, seen in chosen if (case.simulator, case.label) == key]
        right = [f"{s.first_right - c.onset}/{c.steps}" for c, s in runs if s.first_right]
        fired = [f"{s.alarmed - c.onset}/{c.steps} {s.symptom}" for c, s in runs if s.alarmed]
        rows.append((*key, str(len(runs)), ", ".join(right) or "-", ", ".join(fired) or "-"))
    heading = ("simulator", "label", "runs", "first right after onset / steps", "Alarm after onset")
    return table(heading, rows)


def reliability(entries: list[Entry]) -> str:
    """Stated confidence against the share that is right."""
    rows = []
    sure = [e for e in entries if e.verdict.confidence and e.case.visible(e.dialect)]
    for low, high in itertools.pairwise(BINS):
        chosen = [e for e in sure if low <= (e.verdict.confidence or 0.0) < high]
        if chosen:
            stated = sum(e.verdict.confidence or 0.0 for e in chosen) / len(chosen)
            rows.append((f"{stated:.2f}", share(e.right for e in chosen)))
    return table(("stated confidence, mean of the bin", "right"), rows)
