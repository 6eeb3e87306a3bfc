"""How far an update moves the weights."""

from collections.abc import Iterator

from sweeps.lint.subject import Subject
from sweeps.lint.types import AREAL_READ, CLAIMS, OWN_RUNS, Hit, follows, measured, reported, rule

TINY_COLLAPSE, TINY_EDGE, TINY_SLOW = 5e-3, 2e-3, 1e-5
FULL_HIGHEST, FULL_LOWEST = 1e-4, 1e-7
LORA_HIGHEST, LORA_LOWEST = 2e-3, 1e-6
LARGE_ADAM_EPS = 1e-5
NO_CLIPPING = 100.0


def _lora(subject: Subject) -> bool:
    other = subject.other
    rank = other.get("actor_rollout_ref.model.lora_rank")
    named = subject.config.actor.use_lora or other.get("use_peft") is True
    return named or (isinstance(rank, int) and rank > 0) or "lora_r" in other


@rule(
    "lr-collapses-tiny",
    severity="likely-harmful",
    keys=("actor.optimizer.lr", "actor.optimizer.type"),
    claim="The embedded policy collapses at learning rates of 5e-3 and above.",
    evidence=measured("5e-3 and 1e-2: 0.00; 5e-4: 0.96 to 0.99"),
    source=f"{CLAIMS}; {OWN_RUNS}",
)
def lr_collapses_tiny(subject: Subject) -> Iterator[Hit]:
    """Beyond the edge of the embedded policy."""
    optimizer = subject.config.actor.optimizer
    if subject.tiny and optimizer.type == "adam" and optimizer.lr >= TINY_COLLAPSE:
        yield Hit(
            "actor.optimizer.lr",
            f"{subject.show('actor.optimizer.lr')}: the embedded policy loses its task within ten "
            "steps (KL of 4 to 6 nats per token)",
            f"set {subject.name('actor.optimizer.lr')} to 5e-4",
        )


@rule(
    "lr-edge-tiny",
    severity="worth-knowing",
    keys=("actor.optimizer.lr", "actor.optimizer.type"),
    claim="At a learning rate of 2e-3 the embedded policy fails on some seeds.",
    evidence=measured("2e-3: 0.91/0.52/0.57"),
    source=OWN_RUNS,
)
def lr_edge_tiny(subject: Subject) -> Iterator[Hit]:
    """At the edge of the embedded policy."""
    optimizer = subject.config.actor.optimizer
    if subject.tiny and optimizer.type == "adam" and TINY_EDGE <= optimizer.lr < TINY_COLLAPSE:
        yield Hit(
            "actor.optimizer.lr",
            f"{subject.show('actor.optimizer.lr')}: seeds disagree at this rate, so differences "
            "between configurations drown",
            f"set {subject.name('actor.optimizer.lr')} to 5e-4",
        )


@rule(
    "lr-slow-tiny",
    severity="worth-knowing",
    keys=("actor.optimizer.lr", "actor.optimizer.type"),
    claim="At 1e-5 and below the embedded policy needs far more than 40 steps.",
    evidence=measured("1e-5: 0.50 after 40 steps and 0.80 after 200"),
    source=OWN_RUNS,
)
def lr_slow_tiny(subject: Subject) -> Iterator[Hit]:
    """Too slow to tell."""
    optimizer = subject.config.actor.optimizer
    if subject.tiny and optimizer.type == "adam" and optimizer.lr <= TINY_SLOW:
        yield Hit(
            "actor.optimizer.lr",
            f"{subject.show('actor.optimizer.lr')}: slow, not sick; a short run will look flat",
            "give it more steps, or set it to 5e-4",
        )


@rule(
    "lr-above-known",
    severity="likely-harmful",
    keys=("actor.optimizer.lr", "actor.optimizer.type", "actor.use_lora"),
    claim="RL of language models is known to work up to 1e-4 (full) and 2e-3 (LoRA), not above.",
    evidence=reported(
        "published recipes use 1e-6 to 2e-5 for all weights and 1e-5 to 1e-3 for LoRA; several "
        "collapses were cured by a lower rate. AReaL's default is 1e-3"
    ),
    source=f"huggingface/open-r1 #403; verl-project/uni-agent #175; {AREAL_READ}",
)
def lr_above_known(subject: Subject) -> Iterator[Hit]:
    """A rate beyond what is known to work."""
    optimizer = subject.config.actor.optimizer
    highest = LORA_HIGHEST if _lora(subject) else FULL_HIGHEST
    if subject.dialect == "space" or optimizer.type != "adam" or optimizer.lr <= highest:
        return
    yield Hit(
        "actor.optimizer.lr",
        f"{subject.show('actor.optimizer.lr')}: language models are trained with 1e-6 to 2e-5 "
        "(LoRA: up to 1e-3); at this rate the first updates destroy the policy unless the model is "
        "tiny",
        f"set {subject.name('actor.optimizer.lr')} to 1e-6 for all weights, 1e-5 for LoRA, and "
        "sweep from there",
    )


@rule(
    "lr-below-known",
    severity="worth-knowing",
    keys=("actor.optimizer.lr", "actor.optimizer.type", "actor.use_lora"),
    claim="Below 1e-7 (full) or 1e-6 (LoRA) a run is too slow to be told from a dead one.",
    evidence=reported("published recipes do not go below 1e-7"),
    source="recipes of AReaL, TRL and verl",
)
def lr_below_known(subject: Subject) -> Iterator[Hit]:
    """A rate below what is known to work."""
    optimizer = subject.config.actor.optimizer
    lowest = LORA_LOWEST if _lora(subject) else FULL_LOWEST
    if subject.dialect != "space" and optimizer.type == "adam" and optimizer.lr < lowest:
        yield Hit(
            "actor.optimizer.lr",
            f"{subject.show('actor.optimizer.lr')}: slower than any published recipe; the reward "
            "will look flat for hundreds of steps",
            "check the unit, or sweep upwards",
        )


@rule(
    "no-warmup",
    severity="worth-knowing",
    keys=("actor.optimizer.type", "actor.optimizer.warmup_steps_proportion"),
    claim="Adam's first step moves every weight by lr, however small its gradient.",
    evidence=measured(
        "one task without warm-up at 1e-3: 0.41 to 0.22 in five steps, at 2e-3 to 0 for good; ten "
        "warm-up steps cure it"
    ),
    source="own runs of the add task",
)
def no_warmup(subject: Subject) -> Iterator[Hit]:
    """A written warm-up of 0."""
    optimizer = subject.config.actor.optimizer
    key = "actor.optimizer.warmup_steps_proportion"
    if optimizer.type == "adam" and optimizer.warmup_steps_proportion == 0 and subject.gives(key):
        yield Hit(
            key,
            f"{subject.show(key)}: Adam starts without a history, so its first steps have full "
            "size in every weight",
            f"set {subject.name(key)} to a few steps, or keep lr well below its edge",
        )


@rule(
    "no-gradient-clipping",
    severity="worth-knowing",
    keys=("actor.optimizer.gradient_clipping",),
    claim="Without gradient clipping one bad batch decides the weights.",
    evidence=measured(
        "one advantage of 1e5 per batch: 0.93 to 0.95 with clipping at 1, 0.27 to 0.55 without"
    ),
    source=OWN_RUNS,
)
def no_gradient_clipping(subject: Subject) -> Iterator[Hit]:
    """Clipping is off, or so high that it is."""
    limit = subject.config.actor.optimizer.gradient_clipping
    if limit <= 0 or limit >= NO_CLIPPING:
        key = "actor.optimizer.gradient_clipping"
        yield Hit(
            key,
            f"{subject.show(key)}: harmless while the pipeline is, but a single exploded "
            "advantage then goes straight into the weights",
            f"set {subject.name(key)} to 1.0",
        )


@rule(
    "large-adam-eps",
    severity="worth-knowing",
    keys=("actor.optimizer.eps", "actor.optimizer.type"),
    claim="A large Adam eps makes small gradients small steps.",
    evidence=measured(
        "eps 1e-5 at reward scaling 1e-3, no std: 0.83 to 0.84 in place of 0.91-0.95"
    ),
    source=OWN_RUNS,
)
def large_adam_eps(subject: Subject) -> Iterator[Hit]:
    """Adam is no longer blind to scale."""
    optimizer = subject.config.actor.optimizer
    if optimizer.type == "adam" and optimizer.eps >= LARGE_ADAM_EPS:
        yield Hit(
            "actor.optimizer.eps",
            f"{subject.show('actor.optimizer.eps')}: gradients below it shrink the step, so reward "
            "scaling starts to matter",
            f"set {subject.name('actor.optimizer.eps')} to 1e-8",
        )


@rule(
    "more-minibatches-than-rows",
    severity="likely-harmful",
    keys=("actor.ppo_n_minibatches", "gconfig.n_samples", "train_dataset.batch_size"),
    claim="A batch cannot be cut into more minibatches than it has answers.",
    evidence=follows("batch_size * n_samples answers"),
    source="our trainer makes fewer updates; AReaL fails or idles",
)
def more_minibatches_than_rows(subject: Subject) -> Iterator[Hit]:
    """Fewer answers than updates."""
    keys = ("train_dataset.batch_size", "gconfig.n_samples")
    rows = subject.config.train_dataset.batch_size * subject.config.gconfig.n_samples
    wanted = subject.config.actor.ppo_n_minibatches
    if subject.dialect == "trl" or rows >= wanted or not subject.gives(keys[0]):
        return
    yield Hit(
        "actor.ppo_n_minibatches",
        f"{subject.show('actor.ppo_n_minibatches')} with {subject.show(keys[0])} and "
        f"{subject.show(keys[1])}: there are only {rows} answers to share out",
        f"set {subject.name('actor.ppo_n_minibatches')} to {rows} or less",
        also=keys,
    )


RULES = (
    lr_above_known,
    lr_collapses_tiny,
    more_minibatches_than_rows,
    lr_edge_tiny,
    lr_slow_tiny,
    lr_below_known,
    no_warmup,
    no_gradient_clipping,
    large_adam_eps,
)
