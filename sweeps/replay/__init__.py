"""Replay: a whole search space evaluated on recorded rollouts, without training.

recording  arrays of one batch, checked
files      our own format: safetensors with a JSON header
foreign    what other trainers dump: JSONL and npz
inert      settings that provably decide nothing beside others
dead       configurations whose update is provably zero
blind      settings that replay cannot see, and why
evaluate   every cell of a space on the batch, in several processes
compare    which cells agree, how far each knob turns the update
outcome    what replay found, as JSON
proven     cells that are dead or repeat another, from the configurations alone
implied    those proofs held against a recorded batch
spared     trials of a sweep that are not run, and their ends
table      the same for people
figure     the same as a picture
command    `sweeps replay`
"""
