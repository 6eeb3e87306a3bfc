"""Does a task give a policy anything to learn from? Asked of a few prompts, before a sweep.

measure  a few groups of answers become pass rates and expected silent shares
command  `sweeps probe`
"""

from sweeps.probe.measure import Probe, expected_silent, probe, probes_of

__all__ = ["Probe", "expected_silent", "probe", "probes_of"]
