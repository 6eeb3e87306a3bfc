"""Readers: AReaL, search spaces, TRL and verl, all in AReaL's terms.

base    what a reader gives, and how a table of translations is applied
areal   AReaL's YAML
space   our search spaces, cell by cell
trl     TRL's GRPOConfig
verl    verl's YAML and overrides
detect  whose file it is
"""
