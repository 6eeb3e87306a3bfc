"""Detectors in causal order; a new one is one definition and one entry in DETECTORS."""

from sweeps.detectors.base import Detector
from sweeps.detectors.dead_update import DeadUpdate, StarvedUpdate
from sweeps.detectors.entropy import EntropyCollapse, EntropyExplosion
from sweeps.detectors.kl import KlPinned, KlRunaway
from sweeps.detectors.nonfinite import NonFinite
from sweeps.detectors.overshoot import Overshoot
from sweeps.detectors.reward import RewardCollapse, RewardHacking, RewardPlateau
from sweeps.detectors.zero_signal import RewardConstant, ZeroSignal

DETECTORS: tuple[Detector, ...] = (
    RewardConstant(),
    ZeroSignal(),
    DeadUpdate(),
    NonFinite(),
    RewardHacking(),
    KlPinned(),
    Overshoot(),
    KlRunaway(),
    EntropyExplosion(),
    EntropyCollapse(),
    StarvedUpdate(),
    RewardCollapse(),
    RewardPlateau(),
)
"""Every detector; where two onsets are equal, the earlier entry is the cause."""

SIGNAL_SYMPTOMS = ("reward_constant", "zero_signal", "dead_update")
"""Without a signal nothing else can be a cause, whenever it shows."""
OUTCOME_SYMPTOMS = ("reward_collapse", "reward_plateau")
"""What every cause leads to: primary only where no cause is seen."""

__all__ = ["DETECTORS", "OUTCOME_SYMPTOMS", "SIGNAL_SYMPTOMS", "Detector"]
