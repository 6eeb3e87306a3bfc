"""What is right on a log of another package's simulator: data, fixed before any verdict of ours.

Each fault is taken in the meaning that its package documents (docstrings of the detector that is
meant to find it), not in the shape of its curves. `shown_by` names what a log must hold for the
fault to be seen at all; in a dialect that logs none of it the case counts as not visible.
Symptoms in `rival_only` exist in the other packages alone; we can never say them.
"""

from dataclasses import dataclass

HEALTHY = ("healthy/converged", "healthy/improving", "healthy/saturated")


@dataclass(frozen=True, slots=True)
class Label:
    """One scenario of one simulator."""

    accepted: tuple[str, ...]
    """Verdicts that are right: symptoms, or `healthy/STATE`."""
    shown_by: tuple[str, ...]
    """Quantities of `foreign_keys`; one of them shows the fault."""
    reason: str
    """Why these verdicts."""
    otherwise: tuple[str, ...] = ()
    """Also right where nothing of `shown_by` is logged: all that is left to see."""
    rival_only: tuple[str, ...] = ()
    """Also right, in the rivals' own words."""
    healthy: bool = False
    """Nothing is wrong: any alarm is false."""


LABELS: dict[str, dict[str, Label]] = {
    "rldoctor": {
        "healthy": Label(HEALTHY, ("reward",), "nothing is injected", healthy=True),
        "entropy_collapse": Label(
            ("entropy_collapse",), ("entropy",), "the same meaning: exploration is exhausted"
        ),
        "saturated_groups": Label(
            ("healthy/saturated", "healthy/converged", "zero_signal"),
            ("reward",),
            "groups are silent because all pass: mastery, or nothing left to learn from",
        ),
        "too_hard": Label(
            ("zero_signal", "reward_constant"),
            ("silent",),
            "groups are silent because nearly all fail",
            otherwise=("reward_plateau",),
        ),
        "reward_hacking": Label(
            ("reward_hacking", "generalisation_gap"),
            ("held_out",),
            "training reward and held-out score part",
        ),
        "length_hacking": Label(
            ("length_explosion", "reward_hacking", "generalisation_gap"),
            ("length",),
            "longer answers score better and accuracy does not follow: a hack by length",
        ),
        "truncation": Label(
            ("length_explosion",), ("truncated",), "answers run into the length limit"
        ),
        "kl_blowup": Label(("kl_runaway",), ("kl",), "drift from the reference without bound"),
        "clip_saturation": Label(
            ("ratio_instability", "entropy_collapse"),
            ("clip",),
            "policy moves faster than the trust region; the lower clip 'feeds directly into "
            "entropy collapse', and the fix of both is the same: a wider upper clip",
        ),
        "grad_spikes": Label(
            ("overshoot", "advantage_blowup"),
            ("grad_norm",),
            "single updates far larger than the rest; we call exploding gradients overshoot",
        ),
        "plateau": Label(("reward_plateau",), ("reward",), "the same meaning"),
        "format_domination": Label(
            ("reward_hacking",),
            ("component.format",),
            "the policy optimises the format reward in place of correctness",
        ),
    },
    "rlprobe": {
        "healthy": Label(HEALTHY, ("reward",), "nothing is injected", healthy=True),
        "healthy_ppo": Label(
            HEALTHY, ("reward",), "nothing is injected; with a value function", healthy=True
        ),
        "kl_blowup": Label(("kl_runaway",), ("kl",), "the policy sprints from the reference"),
        "entropy_collapse": Label(
            ("entropy_collapse",), ("entropy",), "the same meaning: nearly deterministic"
        ),
        "reward_hack_length": Label(
            ("length_explosion", "reward_hacking", "generalisation_gap"),
            ("length",),
            "reward rises because answers get longer, not better",
        ),
        "format_gaming": Label(
            ("reward_hacking",),
            ("component.format",),
            "the easy reward component is farmed, the others stagnate",
        ),
        "clip_saturation": Label(
            ("ratio_instability",),
            ("clip",),
            "each update leaves the trust region: stale rollouts, too many epochs",
        ),
        "degenerate_groups": Label(
            ("zero_signal", "reward_constant", "healthy/saturated"),
            ("silent",),
            "groups without variance, prompts too easy or too hard",
        ),
        "adv_collapse": Label(
            ("zero_signal", "reward_constant", "dead_update", "starved_update"),
            ("advantage_max",),
            "the advantages vanish, and with them the gradient's signal",
        ),
        "value_divergence": Label(
            ("baseline_corruption", "noise_dominated"),
            ("value_loss", "explained_variance"),
            "the baseline is worse than none, so advantages are noise",
        ),
        "grad_pathology": Label(
            ("nonfinite", "overshoot", "advantage_blowup"),
            ("grad_norm",),
            "NaN or violently spiking gradients",
        ),
        "truncation_starve": Label(
            ("length_explosion", "misplaced_reward"),
            ("truncated",),
            "answers hit the limit instead of ending; its fixes: the limit, or the handling of EOS",
        ),
        "repetition_spiral": Label(
            ("entropy_collapse",),
            ("repetition",),
            "answers loop; 'a leading indicator of collapse'; no dialect logs repetition",
            rival_only=("repetition",),
        ),
        "reward_std_death": Label(
            ("zero_signal", "reward_constant"),
            ("silent", "group_std", "reward_max"),
            "every answer scores the same, so there is nothing to learn from",
        ),
        "ref_drift_asymmetry": Label(
            ("kl_runaway",),
            ("kl_positional",),
            "drift at some token positions; no dialect logs KL by position",
            rival_only=("kl_asymmetry",),
        ),
        "throughput_rot": Label(
            ("length_explosion", *HEALTHY),
            ("step_time",),
            "steps get slower; 'a symptom, not a disease', an information of the lowest rank",
            rival_only=("throughput",),
        ),
    },
}

RIVAL_SYMPTOMS: dict[str, dict[str, tuple[str, ...]]] = {
    "rldoctor": {
        "advantage_collapse": ("zero_signal", "reward_constant"),
        "entropy_collapse": ("entropy_collapse",),
        "reward_hacking": ("reward_hacking", "generalisation_gap"),
        "length_pathology": ("length_explosion", "length_collapse"),
        "clip_saturation": ("ratio_instability",),
        "kl_drift": ("kl_runaway", "kl_pinned"),
        "gradient_pathology": ("overshoot", "advantage_blowup", "nonfinite", "dead_update"),
        "reward_composition": ("reward_hacking",),
        "plateau": ("reward_plateau",),
    },
    "rlprobe": {
        "KL_BLOWUP": ("kl_runaway",),
        "ENTROPY_COLLAPSE": ("entropy_collapse",),
        "REWARD_HACK_LENGTH": ("length_explosion", "reward_hacking"),
        "FORMAT_GAMING": ("reward_hacking",),
        "CLIP_SATURATION": ("ratio_instability",),
        "DEGENERATE_GROUPS": ("zero_signal", "reward_constant"),
        "ADV_COLLAPSE": ("zero_signal", "dead_update", "starved_update"),
        "VALUE_DIVERGENCE": ("baseline_corruption",),
        "GRAD_PATHOLOGY": ("nonfinite", "overshoot", "advantage_blowup"),
        "TRUNCATION_STARVE": ("length_explosion", "misplaced_reward"),
        "REPETITION_SPIRAL": ("repetition",),
        "REWARD_STD_DEATH": ("zero_signal", "reward_constant"),
        "REF_POLICY_DRIFT_ASYMMETRY": ("kl_asymmetry", "kl_runaway"),
        "THROUGHPUT_ROT": ("throughput",),
    },
}
"""What each detector of a rival means in our words; any of them may be the right one."""
