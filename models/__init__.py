"""The suite's one model: a decoder-only Transformer, its sizes, costs, sharding and steps.

`models.sizes` and `models.costs` import neither jax nor flax, so that a process which must never
start a back end can plan with them.
"""
