"""Detectors in causal order; a new one is one definition and one entry in DETECTORS."""

from sweeps.detectors.advantage import AdvantageBlowup, BaselineCorruption, MisplacedReward
from sweeps.detectors.base import Detector, lacks
from sweeps.detectors.dead_update import DeadUpdate, StarvedUpdate
from sweeps.detectors.desync import RolloutDesync
from sweeps.detectors.entropy import EntropyCollapse, EntropyExplosion
from sweeps.detectors.held_out import GeneralisationGap
from sweeps.detectors.kl import KlPinned, KlRunaway
from sweeps.detectors.length import LengthCollapse, LengthExplosion
from sweeps.detectors.noise import LossScale, NoiseDominated
from sweeps.detectors.nonfinite import NonFinite
from sweeps.detectors.overshoot import Overshoot, RatioInstability
from sweeps.detectors.reward import RewardCollapse, RewardHacking, RewardPlateau
from sweeps.detectors.zero_signal import RewardConstant, ZeroSignal

DETECTORS: tuple[Detector, ...] = (
    RewardConstant(),
    ZeroSignal(),
    DeadUpdate(),
    NonFinite(),
    AdvantageBlowup(),
    BaselineCorruption(),
    MisplacedReward(),
    KlPinned(),
    RewardHacking(),
    RatioInstability(),
    RolloutDesync(),
    Overshoot(),
    KlRunaway(),
    LengthCollapse(),
    LengthExplosion(),
    EntropyExplosion(),
    EntropyCollapse(),
    StarvedUpdate(),
    NoiseDominated(),
    LossScale(),
    GeneralisationGap(),
    RewardCollapse(),
    RewardPlateau(),
)
"""Every detector; where two onsets are equal, the earlier entry is the cause."""

SIGNAL_SYMPTOMS = ("reward_constant", "zero_signal", "dead_update")
"""Nothing reaches the weights: the cause, unless something else had gone wrong before."""
PROVEN_SYMPTOMS = (
    "advantage_blowup",
    "baseline_corruption",
    "misplaced_reward",
    "kl_pinned",
    "reward_hacking",
    "noise_dominated",
)
"""Causes that a stage of the pipeline proves; what the policy does is their consequence."""
MECHANISM_SYMPTOMS = ("ratio_instability", "rollout_desync", "overshoot")
"""Causes that name what the updates do wrong; distance and entropy are their consequence."""
TELEMETRY_SYMPTOMS = ("loss_scale",)
"""Worth knowing, and no harm in itself: a healthy run stays healthy."""
OUTCOME_SYMPTOMS = ("reward_collapse", "reward_plateau")
"""What every cause leads to: primary only where no cause is seen."""

__all__ = [
    "DETECTORS",
    "MECHANISM_SYMPTOMS",
    "OUTCOME_SYMPTOMS",
    "PROVEN_SYMPTOMS",
    "SIGNAL_SYMPTOMS",
    "TELEMETRY_SYMPTOMS",
    "Detector",
    "lacks",
]
