"""The generated model's check of order: calls of different units that touch one entry, one of them
writing, must be ordered by tokens, flags or barriers, though the model runs them one by one.

Each unit counts its calls and knows how many of every other unit's are done: tokens and flags carry
that knowledge, barriers give it to all. Each entry has its last write, and each unit's last read.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.codegen.c_names import indent
from hwgen.codegen.nodes import SERIAL, Loop, nodes
from hwgen.codegen.program import Program
from hwgen.spec.hardware import Barriers, Events, HardwareSpec, Tokens

DISORDER, MISSING, FULL = 14, 9, 11
"""What a model returns: calls without an order, no token to take, a flag above its maximum."""


class Order:
    """Fields and functions of a model that look at the order of calls.

    `known`: whether units know of each other. `rows`: whether entries keep who touched them; not
    where a scoreboard orders calls, nor where iterations run on several workers, each of which has
    units of its own.
    """

    def __init__(self, prefix: str, program: Program, hardware: HardwareSpec) -> None:
        self.prefix, self.hardware = prefix, hardware
        self.names = [unit.name for unit in hardware.units]
        kind = hardware.synchronization
        self.barriers = kind if isinstance(kind, Barriers) else None
        self.events = kind if isinstance(kind, Events) else None
        self.edges = kind.edges if isinstance(kind, Tokens | Events) else ()
        sets = 1 if self.events is not None and self.events.shared else len(self.edges)
        self.queues = sets * (self.events.flags if self.events is not None else 1)
        self.known = bool(self.queues or self.barriers)
        one = all(n.kind == SERIAL for n in nodes(program.body) if isinstance(n, Loop))
        self.rows = self.known and one and len(self.names) > 1

    @property
    def row(self) -> int:
        """Numbers of an entry: its last write, and the last read of each unit."""
        return 1 + len(self.names)

    # --- text that stands once ---

    def types(self) -> list[str]:
        """What stands before the chip."""
        if not self.queues:
            return []
        p, units = self.prefix, len(self.names)
        return [
            "/* What the unit that gave a token knew. */",
            f"struct {p}_token {{",
            f"  uint32_t known[{units}];",
            f"  struct {p}_token *next;",
            "};",
            "",
            f"struct {p}_queue {{",
            f"  struct {p}_token *first, *last;",
            "  int64_t count;",
            "};",
            "",
        ]

    def fields(self, memories: Sequence[str]) -> list[str]:
        """Of the chip."""
        units = len(self.names)
        lines = [f"uint32_t *{name}_rows;" for name in memories] if self.rows else []
        if self.known:
            lines.append(
                f"uint32_t known[{units}][{units}]; /* of each unit: calls of each that are done */"
            )
        if self.barriers:
            lines.append(f"uint32_t told[{units}];")
            lines.append(f"uint32_t past[{units}][{self._kept}][{units}];")
        if self.queues:
            lines.append(f"struct {self.prefix}_queue queues[{self.queues}];")
        return lines

    def cleared(self) -> list[str]:
        """A fresh chip's."""
        fields = ["known"] if self.known else []
        fields += ["told", "past"] if self.barriers else []
        fields += ["queues"] if self.queues else []
        return [f"memset(chip->{f}, 0, sizeof chip->{f});" for f in fields]

    @property
    def _kept(self) -> int:
        """The latest calls of a unit, of which barriers may leave out some."""
        return 1 + (self.barriers.outstanding if self.barriers else 0)

    def functions(self) -> list[str]:
        """What calls and synchronisation call."""
        p, units = self.prefix, len(self.names)
        join = [
            f"for (int u = 0; u < {units}; ++u)",
            "  if (mine[u] < theirs[u])",
            "    mine[u] = theirs[u];",
        ]
        lines: list[str] = []
        if self.known:
            lines += [
                f"static inline void {p}_join(uint32_t *mine, const uint32_t *theirs)",
                "{",
                *indent(join),
                "}",
                "",
                f"static inline void {p}_begin(struct {p}_chip *chip, int unit)",
                "{",
                *([f"  {p}_join(chip->known[unit], chip->told);"] if self.barriers else []),
                "  ++chip->known[unit][unit];",
                *(
                    [
                        f"  memcpy(chip->past[unit][chip->known[unit][unit] % {self._kept}], "
                        "chip->known[unit],",
                        "         sizeof chip->known[unit]);",
                    ]
                    if self.barriers
                    else []
                ),
                "}",
                "",
            ]
        if self.barriers:
            lines += [
                f"static inline void {p}_wait(struct {p}_chip *chip, int unit, uint32_t running)",
                "{",
                "  uint32_t calls = chip->known[unit][unit];",
                "  if (calls > running)",
                f"    {p}_join(chip->told, chip->past[unit][(calls - running) % {self._kept}]);",
                "}",
                "",
            ]
        return [*lines, *(self._exchange() if self.queues else []), *self._after()]

    def _exchange(self) -> list[str]:
        p = self.prefix
        full: list[str] = []
        if self.events is not None:
            full = [
                f"if (queue->count >= {self.events.maximum})",
                f'  return {p}_fail({FULL}, "signal of a flag that is full, flag", number, '
                f"{self.events.maximum});",
            ]
        what = "token from no queue" if self.events is None else "flag"
        return [
            f"static inline int {p}_push(struct {p}_chip *chip, int64_t number, int unit)",
            "{",
            f"  struct {p}_queue *queue = &chip->queues[number];",
            f"  struct {p}_token *token;",
            *indent(full),
            "  token = malloc(sizeof *token);",
            "  if (!token)",
            "    return 1;",
            "  memcpy(token->known, chip->known[unit], sizeof token->known);",
            "  token->next = 0;",
            "  if (queue->count++)",
            "    queue->last->next = token;",
            "  else",
            "    queue->first = token;",
            "  queue->last = token;",
            "  return 0;",
            "}",
            "",
            f"static inline int {p}_pop(struct {p}_chip *chip, int64_t number, int unit)",
            "{",
            f"  struct {p}_queue *queue = &chip->queues[number];",
            f"  struct {p}_token *token = queue->first;",
            "  if (!queue->count)",
            f'    return {p}_fail({MISSING}, "nothing was given to {what}", number, 0);',
            f"  {p}_join(chip->known[unit], token->known);",
            "  queue->first = token->next;",
            "  --queue->count;",
            "  free(token);",
            "  return 0;",
            "}",
            "",
            "/* Of the queues, what is left; the first that is not empty, or -1. */",
            f"static int64_t {p}_left(struct {p}_chip *chip)",
            "{",
            "  int64_t left = -1;",
            f"  for (int64_t number = {self.queues} - 1; number >= 0; --number)",
            f"    for (struct {p}_queue *queue = &chip->queues[number]; queue->count; "
            "--queue->count) {",
            f"      struct {p}_token *token = queue->first;",
            "      queue->first = token->next;",
            "      free(token);",
            "      left = number;",
            "    }",
            "  return left;",
            "}",
            "",
        ]

    def _after(self) -> list[str]:
        """The function that compares an access with earlier ones."""
        if not self.rows:
            return []
        p, units = self.prefix, len(self.names)
        return [
            f"static int {p}_after(struct {p}_chip *chip, uint32_t *rows, int64_t at, "
            "int64_t entries, int unit,",
            f"{' ' * len(p)}                  int write, const char *what, int depth, "
            "const int64_t *steps,",
            f"{' ' * len(p)}                  const int64_t *extents)",
            "{",
            f"  const uint32_t *known = chip->known[unit], mine = known[unit] * {units} + unit;",
            "  if (!rows)",
            "    return 0;",
            "  /* A loop that does not move comes back to the same entries. */",
            "  int64_t often = depth && *steps ? *extents : 1, step = depth ? *steps : 0;",
            "  for (int64_t n = 0; depth > 1 && n < often; ++n)",
            f"    {p}_TRY({p}_after(chip, rows, at + n * step, entries, unit, write, what, "
            "depth - 1,",
            f"{' ' * len(p)}                     steps + 1, extents + 1));",
            "  for (int64_t n = 0; depth <= 1 && n < often * entries; ++n) {",
            "    int64_t entry = at + n / entries * step + n % entries;",
            f"    uint32_t *row = rows + entry * {self.row}, *reads = row + 1;",
            "    if (write ? row[0] == mine : reads[unit] == known[unit])",
            "      continue; /* this call's own */",
            f"    if (row[0] / {units} > known[row[0] % {units}])",
            f"      return {p}_fail({DISORDER}, what, entry, row[0] % {units});",
            f"    for (int u = 0; write && u < {units}; ++u)",
            "      if (reads[u] > known[u])",
            f"        return {p}_fail({DISORDER}, what, entry, u);",
            "    if (write)",
            "      row[0] = mine;",
            "    else",
            "      reads[unit] = known[unit];",
            "  }",
            "  return 0;",
            "}",
            "",
        ]

    # --- text of nodes ---

    def unit(self, name: str) -> int:
        return self.names.index(name)

    def queue(self, source: str, target: str, flag: str = "0") -> str:
        """Index of a token's queue, or a flag's, among all of the chip."""
        edge = self.edges.index((source, target))
        if self.events is None:
            return str(edge)
        return flag if self.events.shared or not edge else f"{edge * self.events.flags} + {flag}"

    def begin(self, unit: str) -> list[str]:
        """A call begins."""
        return [f"{self.prefix}_begin(chip, {self.unit(unit)});"] if self.known else []

    def exchange(self, what: str, queue: str, unit: str) -> str:
        """A push or pop of a unit's."""
        p = self.prefix
        return f"{p}_TRY({p}_{what}(chip, {queue}, {self.unit(unit)}));"

    def wait(self, unit: str, outstanding: int) -> list[str]:
        """A barrier; "": of every unit."""
        units = [self.unit(unit)] if unit else range(len(self.names))
        if not self.barriers:
            return []
        return [f"{self.prefix}_wait(chip, {u}, {outstanding});" for u in units]

    def left(self) -> list[str]:
        """The check at the end that everything given was taken."""
        if not self.queues:
            return []
        p = self.prefix
        called = "of a flag" if self.events is not None else "of queue"
        return [
            "{",
            f"  int64_t left = {p}_left(chip);",
            "  if (status == 0 && left >= 0)",
            f'    status = {p}_fail({MISSING}, "something is left {called}", left, -1);',
            "}",
        ]

    def access(
        self,
        rows: str,
        at: str,
        entries: int,
        unit: str,
        what: str,
        loops: Sequence[tuple[str, str]],
        *,
        writes: bool,
    ) -> list[str]:
        """The check of what a call touches: entries from `at` on, again in each iteration of loops
        (step, extent). What is written is looked at as if it were read too."""
        p = self.prefix
        moving = [x for x in loops if x[0] != "0"]
        arrays = [
            f"(const int64_t[]){{{', '.join(column)}}}" for column in zip(*moving, strict=True)
        ]
        rest = [str(len(moving)), *(arrays or ["0", "0"])]
        head = f"{p}_TRY({p}_after(chip, {rows}, {at}, {entries}, {self.unit(unit)}, {int(writes)}"
        return [f'{head}, "{what}", {", ".join(rest)}));']
