"""Detectors in causal order; a new one is one definition and one entry in DETECTORS."""

from sweeps.detectors.base import Detector
from sweeps.detectors.dead_update import DeadUpdate, StarvedUpdate
from sweeps.detectors.entropy import EntropyCollapse, EntropyExplosion
from sweeps.detectors.kl import KlPinned, KlRunaway
from sweeps.detectors.nonfinite import NonFinite
from sweeps.detectors.overshoot import Overshoot, RatioInstability
from sweeps.detectors.reward import RewardCollapse, RewardHacking, RewardPlateau
from sweeps.detectors.zero_signal import RewardConstant, ZeroSignal

DETECTORS: tuple[Detector, ...] = (
    RewardConstant(),
    ZeroSignal(),
    DeadUpdate(),
    NonFinite(),
    KlPinned(),
    RewardHacking(),
    RatioInstability(),
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
"""Nothing reaches the weights: the cause, unless something else had gone wrong before."""
PROVEN_SYMPTOMS = ("kl_pinned", "reward_hacking")
"""Causes that a stage of the pipeline proves; what the policy does is their consequence."""
MECHANISM_SYMPTOMS = ("ratio_instability", "overshoot")
"""Causes that name what the updates do wrong; distance and entropy are their consequence."""
OUTCOME_SYMPTOMS = ("reward_collapse", "reward_plateau")
"""What every cause leads to: primary only where no cause is seen."""

__all__ = [
    "DETECTORS",
    "MECHANISM_SYMPTOMS",
    "OUTCOME_SYMPTOMS",
    "PROVEN_SYMPTOMS",
    "SIGNAL_SYMPTOMS",
    "Detector",
]
