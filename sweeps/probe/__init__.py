"""Does a task give a policy anything to learn from? Asked of a few prompts, before a sweep.

measure  a few groups of answers become pass rates and expected silent shares; loads torch
command  `sweeps probe`
"""
