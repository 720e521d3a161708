"""Numbers that steer choices: with another value, another kernel may come out.

Each entry says what it is for, its unit, and what other values did when they were tried. Limits
whose excess is an error, sizes of caches of results and numbers of a format or standard are not
here. `tests/unit/test_constants.py` counts the entries and names a kernel for them.
"""

from __future__ import annotations

# Matching

COVER_TRIES = 20_000
"""Intrinsics held against values while a block is covered. A limit of effort: 10^9 changed no
kernel of 36 and took no longer."""

SPLIT_TERMS = 6
"""Operands of one flattened sum or product that are split in all ways; more are taken in order. A
limit of effort, as the ways double with each operand."""

POLYNOMIAL_TERMS = 64
"""Terms of a polynomial in a proof that two values are equal; of a longer one nothing is proved. A
limit of effort."""

FORMS = 64
"""Forms of one workload that moves make and that are looked at. A limit of effort: with 8 and with
10^6, no kernel of eight changed."""

FORMS_COMPILED = 4
"""Forms of a workload whose parts units compute wholly that are compiled. A limit of effort: with 1
and with 20, no kernel of eight changed."""

EQUAL_MATCHES = 4
"""Matches that take as many applications of intrinsics and are compared. A limit of effort: with
16, no kernel of 36 changed."""

MATCHES_SEEN = 32
"""Matches of a phase of which the first are taken. A limit of effort: with 6 and with 10^6, no
kernel of eight changed."""

CONSTANT_STEPS = 4
"""Additions in the place of one whose number no field holds: each is a call."""

# Tile sizes, orders and placements

SHORT_REDUCTION = 8
"""Iterations of reduction loops without lanes that are the first not to be cut. A window has 3 or
5. With 0, a convolution of blocks moves 10.9 MB instead of 3.8 MB; with 32 nothing changed."""

MAX_OPTIONS = 20
"""Tile sizes of one loop in a thinned space. 12 and 40 changed no kernel of 36."""

TAIL_SIZES = 4
"""Sizes of tiles that are costed beside one that makes as many, up to that whose last tile is
shortest. With 1, a layer of 64 x 48 takes 1,104 cycles instead of 1,044."""

TAIL_GAIN = 1.002
"""Times what such a size takes that the cheapest other schedule must take: its program is longer.
With 1, a product of 784 x 1,024 x 256 moves 2.6 MB instead of 1.3 MB, for two cycles in a
thousand."""

MAX_ORDERED = 5
"""Spatial loops of which every order is considered; further ones stay innermost."""

MAX_SHAPES = 1 << 10
"""Orders and placements of one match; of more, fewer loops are ordered."""

LEAST_OPTIONS = 3
"""Tile sizes of one loop in the smallest space."""

MAX_POINTS = 1 << 17
"""Combinations of tile sizes of one match; of more, fewer sizes of a loop are considered. With 2^18
and at least one size, a residual block takes 360,390 cycles instead of 353,552."""

WHOLE_SPACE = 1 << 18
"""A space of at most this many points is considered without restriction. Of a larger one, as many
are costed to see which orders and placements are good. 2^14 and 2^20 changed no kernel of 36."""

CACHE_TILES = 216
"""Combinations of larger tiles around the tile that registers hold. 54 and 800 changed no
kernel."""

# Loops that stages share

BLOCK_SIZES = tuple(8 << n for n in range(10))
"""Elements of the last stage's dimension in a block: powers of two, as lanes mostly are."""

WINDOW_ROWS = (1, 2)
"""Fewer elements, where windows slide: blocks of so few do not compute the same again."""

SHORT_KERNEL = 20_000
"""Cycles up to which a kernel is short: to share loops is looked at without asking whether its
units wait, and in two sizes of blocks."""

USUAL_BLOCK = 32
"""Elements of a block for which covers are chosen, where there is room."""

OPERAND_TILE = 64
"""Iterations of a loop over tiles of an operand that does not fit whole."""

RECOMPUTED = 1.5
"""Times that blocks may execute an instance on average. With 1, a layer normalisation of 333 rows
shares no loop, as its last block is padded."""

JOINING_SAVES = 0.05
"""Part of their cycles that two parts of a network may save at least, by their bounds, to be tried
together. A limit of effort: with 0, no kernel of five changed."""

JOINING_ROOM = 1.5
"""Times the room there is that the buffers of two parts may take: blocks of both can be shorter,
but not what stays for all blocks. A limit of effort: with 10^6, no kernel of five changed."""

COVERS_TRIED = 8
"""Choices of a match for each phase that are tried until a kernel comes of one. With 1, a layer
normalisation takes 1,760 cycles instead of 1,459; with 1,000 nothing changed."""

COVERS_RANKED = 729
"""Choices of a match for each phase that are compared by their bounds: three for each of six. 10
and 10^7 changed no kernel of eight."""

SPILL_TRIES = 16
"""Choices of tensors that leave the chip, tried in the order of their bytes; after these, one that
lets more go. A limit of effort."""

PIPELINED_KERNELS = 3
"""Kernels of which pipelines are looked for, those with the least busy units first. With 1, an
attention takes 15,194 cycles instead of 12,868; with 10 nothing changed."""

HANDOVERS_TRIED = 3
"""Handovers of a kernel that are tried in chunks, those first that may gain most. With 0, an
attention gets slower; with 20 nothing changed."""

CHUNKS = (2, 4)
"""Pieces in which one block takes what another makes. Without 4, an attention takes 12,996 cycles
instead of 12,868; 8 pieces changed nothing."""

# Lowering

FREE_STEPS = 64
"""A hardware loop whose steps of an operand have at least so many values leaves its order free.
With 0, calls of arrays of rows become more."""

PEELED_ITERATIONS = 4
"""Iterations, in each of which a condition holds for other inner ones, that stand apart each: each
has calls of its own in the program."""

PLACEMENTS = 1_000
"""Partial placements in banks that a search looks at. With 1, a matrix product takes 17,887 cycles
instead of 10,607; with 100 and 10^5 nothing changed."""

TOUCHED_RUNS = 64
"""Runs of entries that one call touches and that are told apart; of more, what lies between them
counts too."""

# Loops of a processor

UNSTAGED_READ = 2.0
"""Times that reading past a block's own memory counts: how often a cache has it, nobody knows
beforehand. With 1, six kernels of CUDA of 86 changed, none of them measured yet."""

STAGED_PADDING = 1.2
"""Times the room of staged operands that they take with their padding."""

WRITTEN_NODES = 256
"""Nodes of a value up to which what is read more than once is written out at each place. With 0, a
softmax on units takes 3,331 cycles instead of 2,616; without a limit, one takes 1,252 instead of
383, and compiling takes four times as long."""

MERGED_LOOPS = 3
"""Loops after one another that are merged into one at once. With 1, a layer normalisation takes
3,349 cycles instead of 2,844; 2 and 10 changed nothing."""
