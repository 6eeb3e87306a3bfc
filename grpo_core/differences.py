"""Where the default departs from AReaL, as data: `areal_compat: true` restores AReaL's way.

`sweeps explain` prints these by key; docs/areal_differences.md is `render_document()`.
"""

from dataclasses import dataclass

AREAL = "AReaL cbff54d64, observed by running it"

INTRODUCTION = """# Where the default departs from AReaL

Stage for stage, the trainer computes what AReaL computes. Where AReaL's behaviour is a defect, the
default does the right thing, and `areal_compat: true` reproduces AReaL, so that the failure of an
AReaL run can be seen. The reference values that both are checked against are AReaL's own results
(`tests/golden/check.py`). Generated from `grpo_core/differences.py`.
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """One departure from AReaL."""

    key: str
    """Dotted key of the setting that it concerns."""
    areal: str
    """What AReaL does, and `areal_compat` with it."""
    ours: str
    """What the default does."""
    reason: str
    """Why that is right."""
    source: str
    """Where either is written or was observed."""


def differences_of(key: str) -> tuple[Difference, ...]:
    """Give the differences that concern a key, a section above it, or a setting below it."""
    return tuple(
        difference
        for difference in DIFFERENCES
        if difference.key == key
        or difference.key.startswith(f"{key}.")
        or key.startswith(f"{difference.key}.")
    )


def render_document() -> str:
    """Write the table of all differences as Markdown."""
    rows = [
        f"| `{item.key}` | {item.areal} | {item.ours} | {item.reason} | {item.source} |"
        for item in DIFFERENCES
    ]
    header = [
        "| setting | AReaL and `areal_compat` | default | reason | source |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([INTRODUCTION, *header, *rows]) + "\n"


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        key="actor.mask_no_eos_with_zero",
        areal="An answer counts as truncated when it fills the padded width of its batch.",
        ours="An answer counts as truncated when its last token is not the end of the sequence.",
        reason="The longest row of every batch is flagged though it ended, shorter truncated rows "
        "are missed, and one more padding column switches the detection off.",
        source=AREAL,
    ),
    Difference(
        key="actor.mask_no_eos_with_zero",
        areal="Truncated answers stay in the statistics of `reward_norm` before their reward is "
        "set to 0.",
        ours="Truncated answers are left out of those statistics.",
        reason="A reward that is thrown away must not move its group's baseline.",
        source=AREAL,
    ),
    Difference(
        key="actor.reward_norm",
        areal="Rows without any trained token count in the statistics.",
        ours="They do not count.",
        reason="An aborted row with a large reward would shift its whole group, and teaches "
        "nothing itself.",
        source=AREAL,
    ),
    Difference(
        key="actor.reward_norm.group_size",
        areal="Without group metadata, rows beyond the last whole block get mean 0 and spread 0, "
        "so they come out as reward / eps.",
        ours="Those rows form a last, smaller group.",
        reason="A batch of 16 with group_size 5 gave an advantage of -89 733.",
        source=AREAL,
    ),
    Difference(
        key="actor.reward_norm.mean_level",
        areal="Group means are rounded to float32 before they are subtracted.",
        ours="They stay in float64 until the end.",
        reason="Groups whose spread is 1e-7 of their level are off by 1e-3 after scaling.",
        source=AREAL,
    ),
    Difference(
        key="actor.reward_norm.mean_leave1out",
        areal="A lone element keeps its raw value at batch level, and becomes 0 as a group of one.",
        ours="A lone element becomes 0 at both levels.",
        reason="Without others there is nothing to compare with; one setting, one meaning.",
        source=AREAL,
    ),
    Difference(
        key="actor.adv_norm.mean_leave1out",
        areal="Leaves out one token of the answer.",
        ours="Leaves out the whole answer.",
        reason="RLOO's baseline is independent of the answer it is subtracted from; the answer's "
        "other tokens carry the same reward.",
        source="RLOO, arXiv 2402.14740; " + AREAL,
    ),
    Difference(
        key="actor.adv_norm.std_unbiased",
        areal="A group of one answer has spread 1, however many tokens it has.",
        ours="Its spread comes from its tokens.",
        reason="The statistic runs over tokens; one answer has enough of them.",
        source=AREAL,
    ),
    Difference(
        key="actor.adv_norm",
        areal="Without any trained token the raw advantages come back.",
        ours="They become 0.",
        reason="Nothing is trained on, so nothing may look like a signal.",
        source=AREAL,
    ),
    Difference(
        key="actor.gae_lambda",
        areal="Advantages and returns at prompt positions carry the next trained position's value.",
        ours="They are 0 outside the mask.",
        reason="They never enter a loss, but do enter whatever averages over positions.",
        source=AREAL,
    ),
    Difference(
        key="actor.discount",
        areal="The outcome goes to the prediction of the last token, and GAE drops it when that "
        "token is not trained on.",
        ours="The outcome goes to the last trained position.",
        reason="An answer that ends in a tool or user message would lose its only signal.",
        source=AREAL,
    ),
    Difference(
        key="critic",
        areal="Values are bootstrapped for rows that fill the padded width, from its last column.",
        ours="They are bootstrapped for truncated answers, from the value after their last token.",
        reason="A finished answer has no future, and a truncated one has it wherever its row ends.",
        source=AREAL,
    ),
    Difference(
        key="actor.overlong_penalty_factor",
        areal="The penalty goes on growing beyond `actor.max_new_tokens`.",
        ours="It stops at `overlong_penalty_factor`.",
        reason="The factor is the penalty of an answer that is too long.",
        source="DAPO, arXiv 2503.14476 eq. 13; " + AREAL,
    ),
    Difference(
        key="actor.kl_ctl",
        areal="A missing reference policy is taken as log-probability 0.",
        ours="kl_ctl > 0 without a reference is refused.",
        reason="With k1 the penalty becomes a bonus of -kl_ctl * log-prob for unlikely tokens, and "
        "dominates: loss -0.635 in place of -0.055.",
        source=AREAL,
    ),
    Difference(
        key="actor.prox_logp_method",
        areal="`loglinear` reads token-aligned versions against shifted log-probs, one position "
        "late.",
        ours="The version belongs to the predicted token.",
        reason="The first token of each new version would be interpolated with the old one's.",
        source="AReaL cbff54d64, read",
    ),
    Difference(
        key="actor.m2_threshold",
        areal="Tokens that M2PO drops also leave the denominator.",
        ours="The denominator counts them.",
        reason="The paper averages over all tokens, as a clip does; otherwise dropping tokens "
        "makes the step of the others larger.",
        source="M2PO, arXiv 2510.01161 eq. 5, footnote 2; " + AREAL,
    ),
    Difference(
        key="actor.m2_threshold",
        areal="The threshold holds for every micro-batch.",
        ours="It holds for the batch, where the proximal log-probs are known before the update.",
        reason="The result must not depend on how rows are packed.",
        source="M2PO, arXiv 2510.01161 algorithm 1; " + AREAL,
    ),
    Difference(
        key="actor.m2_threshold",
        areal="A negative threshold is accepted and keeps one token.",
        ours="It is refused.",
        reason="A mean of squares cannot be below 0.",
        source=AREAL,
    ),
    Difference(
        key="actor.eps_clip",
        areal="A token-level ratio that overflows at a masked position makes the gradient NaN.",
        ours="Masked positions cannot reach the gradient.",
        reason="What is not trained on must be inert.",
        source=AREAL,
    ),
    Difference(
        key="actor.importance_sampling_level",
        areal="Positions that the staleness filter dropped keep their ratio at token level, and "
        "count as 0 in the average at sequence level.",
        ours="They have ratio 0 and are outside the mask that statistics use.",
        reason="Ratio statistics describe what is trained on.",
        source=AREAL,
    ),
    Difference(
        key="actor.rejection_sampling.metric",
        areal="With metric ratio, a log-ratio that is not finite passes with weight 1.",
        ours="It is out of bounds.",
        reason="A token that one of the policies finds impossible is the stalest there is.",
        source=AREAL,
    ),
    Difference(
        key="actor.rejection_sampling.metric",
        areal="`binary_kl` is documented and computed, but refused by the validator.",
        ours="It is accepted.",
        reason="It is KPop's metric; AReaL's own example cannot start.",
        source=AREAL,
    ),
    Difference(
        key="actor.rejection_sampling",
        areal="Without `use_decoupled_loss` a warning says that the filter is ignored; it is not.",
        ours="It is refused.",
        reason="Ratio and divergence are then 1 and 0: either nothing is dropped or everything.",
        source=AREAL,
    ),
    Difference(
        key="gconfig.greedy",
        areal="Greedy sampling of several answers per prompt is accepted.",
        ours="It is refused.",
        reason="All answers of a group are the same, so no advantage can arise.",
        source="GRPO, arXiv 2402.03300",
    ),
)
