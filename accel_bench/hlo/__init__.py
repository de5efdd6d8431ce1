"""Reads the text of an optimised XLA program, and tells what one call of it does on one device.

    analysis     `analyse`: all facts of a program; start here
    code         fusions, kernels, copies, layouts, and the compiler's own estimate
    collectives  what devices send each other, along which axes of the mesh
    traffic      bytes of main memory
    products     FLOPs of matrix products and convolutions
    groups       which devices talk to each other: replica groups, and the mesh axes they lie along
    pairs        asynchronous work: what ends what was started
    runs         how often each instruction runs, and sums over that
    loops        trips of a while loop
    kinds        what kind of instruction it is
    text         modules, computations and instructions
    shapes       array types: sizes, bytes, memory, layout

A module imports only from those below it. Nothing here raises for odd text or imports jax. A figure
that cannot be told is None, with a sentence that says why; none is a guess.
"""
