"""Other people's training logs as traces of ours.

signals      the names of the signals
dialects     whose key is which signal: one table per framework
values       numbers as logs print them
lines        text of any size and encoding
collector    records into columns of numbers
jsonl, console, table, tensorboard, mlflow_runs, own   the forms of logs
groups       what single rewards say of a batch
detect       whose log it is
order        resumed, shuffled, repeated and missing steps
settings     the settings that a log states
derive       signals that follow from what is logged
run          a log as a trace, and what to say about it
load, find   from a path to a run, from a folder to its logs
"""

from sweeps.importers.dialects import DIALECTS
from sweeps.importers.errors import LogError
from sweeps.importers.find import Target, find_logs
from sweeps.importers.load import Reader, load_run
from sweeps.importers.run import LoadedRun, Options
from sweeps.importers.signals import SIGNALS

__all__ = [
    "DIALECTS",
    "SIGNALS",
    "LoadedRun",
    "LogError",
    "Options",
    "Reader",
    "Target",
    "find_logs",
    "load_run",
]
