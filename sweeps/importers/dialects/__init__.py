"""Whose log it is: one table of metric keys per framework."""

from sweeps.importers.dialects.areal import AREAL
from sweeps.importers.dialects.base import Dialect, Entry, Match, match, match_stated
from sweeps.importers.dialects.own import PLAIN, SWEEPS
from sweeps.importers.dialects.trl import STRICT, TRL
from sweeps.importers.dialects.verl import VERL

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (AREAL, TRL, VERL, SWEEPS, PLAIN)
}
"""In the order in which a tie is decided."""

__all__ = ["DIALECTS", "STRICT", "Dialect", "Entry", "Match", "match", "match_stated"]
