"""Search spaces: files that say which settings are in question, parsed and validated.

types      what a search space is
file       its top level as written
axes       its axes, their levels, and combinations that are left out
base       the configuration that the axes vary
design     how cells are chosen, as written
choose     which combinations a design takes
pairs      covering designs
cells      combinations as validated configurations
problems   what is wrong with a file, in words
load       the way in: a file becomes a Space, or a list of every problem
"""

from sweeps.space.design import Design
from sweeps.space.load import load_space, parse_space
from sweeps.space.types import Axis, Budget, Cell, Level, Space

__all__ = ["Axis", "Budget", "Cell", "Design", "Level", "Space", "load_space", "parse_space"]
