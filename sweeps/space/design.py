"""How the cells of a sweep are chosen, as written in the file: `design`."""

import difflib
from typing import Any, Literal, get_args

from grpo_core.config import Count, Section
from sweeps.space.problems import no_such_key, shown

Kind = Literal["grid", "one-factor", "pairwise", "random", "tpe"]
KINDS: tuple[Kind, ...] = get_args(Kind)
KEYS_OF: dict[Kind, tuple[str, ...]] = {
    "grid": ("kind",),
    "one-factor": ("kind",),
    "pairwise": ("kind", "seed"),
    "random": ("kind", "cells", "seed"),
    "tpe": ("kind", "cells", "seed"),
}
"""What can be said of each kind."""


class Design(Section):
    """How cells are chosen."""

    kind: Kind = "grid"
    """Every combination; one change at a time; all pairs; a sample; or a search."""
    cells: Count | None = None
    """How many, for `random` and `tpe`."""
    seed: int = 0
    """Seed of the choice; the trials have their own."""

    @property
    def searches(self) -> bool:
        """Cells are chosen while the sweep runs, from the results so far."""
        return self.kind == "tpe"


def read_design(written: object, problems: list[str]) -> Design | None:
    """The design; None where it cannot be read."""
    document = {"kind": written} if isinstance(written, str) else written
    if not isinstance(document, dict) or "kind" not in document:
        problems.append(
            f"design: got {shown(written)}, wanted one of {', '.join(KINDS)}, or a mapping with "
            "`kind`"
        )
        return None
    where = "design" if isinstance(written, str) else "design.kind"
    kind = _kind(document["kind"], where, problems)
    if kind is None:
        return None
    before = len(problems)
    problems += [
        f"design.{no_such_key(key, KEYS_OF[kind], f'{kind} design')}"
        for key in document
        if key not in KEYS_OF[kind]
    ]
    _check_numbers(kind, document, problems)
    return None if len(problems) > before else Design.model_validate(document)


def _kind(written: object, where: str, problems: list[str]) -> Kind | None:
    for kind in KINDS:
        if written == kind:
            return kind
    close = difflib.get_close_matches(str(written), KINDS, n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]}?" if close else ""
    problems.append(f"{where}: got {shown(written)}, wanted one of {', '.join(KINDS)}{hint}")
    return None


def _check_numbers(kind: Kind, document: dict[str, Any], problems: list[str]) -> None:
    if "cells" in KEYS_OF[kind]:
        cells = document.get("cells")
        if cells is None:
            problems.append(
                f"design.cells: missing; say how many, e.g. {{kind: {kind}, cells: 20}}"
            )
        elif type(cells) is not int or cells < 1:
            problems.append(f"design.cells: got {shown(cells)}, wanted a whole number >= 1")
    seed = document.get("seed", 0)
    if type(seed) is not int or seed < 0:
        problems.append(f"design.seed: got {shown(seed)}, wanted a whole number >= 0")
