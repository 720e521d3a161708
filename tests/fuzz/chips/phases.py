"""Random workloads of several phases: sums along rows and columns, products, what follows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hwgen.verify.natural.draws import Choose, Pick, Spec

EXTENTS = (4, 1, 2, 3, 5, 7, 9, 17, 33)


@dataclass
class _Chain:
    """Statements so far; `rows` and `columns` are the extents of the tensors `grids`, which all
    have one shape until a product changes it."""

    pick: Pick
    tensors: dict[str, str] = field(default_factory=dict[str, str])
    compute: list[str] = field(default_factory=list[str])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    grids: list[str] = field(default_factory=list[str])
    columns: str = "N0"

    def size(self, base: str) -> str:
        name = f"{base}{sum(n.startswith(base) for n in self.sizes)}"
        self.sizes[name] = self.pick(EXTENTS)
        return name

    def tensor(self, base: str, *extents: str) -> str:
        name = f"{base}{sum(n.startswith(base) for n in self.tensors)}"
        self.tensors[name] = f"float32[{', '.join(extents)}]"
        return name

    @property
    def latest(self) -> str:
        return self.grids[-1]

    def some(self) -> str:
        """Mostly the latest grid, else an earlier one: it is then read by two statements."""
        return self.pick(self.grids) if self.pick.chance(3) else self.latest

    def row(self, op: str, value: str) -> str:
        name = self.tensor("r", "M0")
        self.compute.append(f"{name}[m] {op} {value}")
        return name

    def grid(self, value: str) -> str:
        name = self.tensor("g", "M0", self.columns)
        self.compute.append(f"{name}[m, n] = {value}")
        self.grids.append(name)
        return name

    # -- steps ------------------------------------------------------------------------------

    def product(self) -> None:
        columns, source = self.size("N"), self.some()
        turned = self.pick.chance(2)
        shape = (columns, self.columns) if turned else (self.columns, columns)
        name, weight = self.tensor("g", "M0", columns), self.tensor("w", *shape)
        at = "n, k" if turned else "k, n"
        self.compute.append(f"{name}[m, n] += {source}[m, k] * {weight}[{at}]")
        self.columns, self.grids = columns, [name]

    def softmax(self) -> None:
        source = self.some()
        top = self.row("max=", f"{source}[m, n]")
        e = self.grid(f"exp({source}[m, n] - {top}[m])")
        total = self.row("+=", f"{e}[m, n]")
        self.grid(f"{e}[m, n] / {total}[m]")

    def normalise(self) -> None:
        source = self.some()
        total = self.row("+=", f"{source}[m, n]")
        c = self.grid(f"{source}[m, n] - {total}[m] * (1.0 / {self.columns})")
        if self.pick.chance(2):
            squares = self.row("+=", f"{c}[m, n] * {c}[m, n]")
            scale = self.tensor("r", "M0")
            self.compute.append(f"{scale}[m] = rsqrt({squares}[m] * (1.0 / {self.columns}) + 0.5)")
            self.grid(f"{c}[m, n] * {scale}[m]")

    def reduced_twice(self) -> None:
        """The rows' result added or subtracted, which a later step may reduce again."""
        source = self.some()
        row = self.row(self.pick(("+=", "max=")), f"{source}[m, n]")
        self.grid(f"{self.some()}[m, n] {self.pick('+-*')} {row}[m]")

    def residual(self) -> None:
        self.grid(f"{self.latest}[m, n] + {self.pick(self.grids)}[m, n]")

    def elementwise(self) -> None:
        source, symbol = f"{self.some()}[m, n]", self.pick("+-*")
        match self.pick(("relu", "bias", "constant", "input", "twice", "column")):
            case "relu":
                self.grid(f"max({source}, 0)")
            case "bias":
                self.grid(f"max({source} + {self.tensor('b', self.columns)}[n], 0)")
            case "constant":
                self.grid(f"{source} {self.pick('+*')} {self.pick((0.5, -2.0, 3.0))}")
            case "input":
                self.grid(f"{source} {symbol} {self.tensor('x', 'M0', self.columns)}[m, n]")
            case "column":
                self.grid(f"{source} {symbol} {self.tensor('b', 'M0')}[m]")
            case _:
                self.grid(f"{source} {symbol} {source}")

    def column_sum(self) -> None:
        """The other direction: over the rows."""
        source = self.some()
        name = self.tensor("k", self.columns)
        self.compute.append(f"{name}[n] {self.pick(('+=', 'max='))} {source}[m, n]")
        self.grid(f"{source}[m, n] {self.pick('+-*')} {name}[n]")

    def gram(self) -> None:
        """Rows by rows, both factors on the chip; transposed in one of them."""
        name, source = self.tensor("g", "M0", "M0"), self.some()
        self.compute.append(f"{name}[m, n] += {self.latest}[m, k] * {source}[n, k]")
        self.columns, self.grids = "M0", [name]


def phased_workload(choose: Choose) -> Spec:
    """A workload in float32 of two to five steps, one to some ten statements."""
    pick = Pick(choose)
    chain = _Chain(pick)
    chain.size("M")
    chain.size("N")
    chain.grids = [chain.tensor("x", "M0", "N0")]
    steps = (
        *(_Chain.product, _Chain.product, _Chain.softmax, _Chain.normalise, _Chain.reduced_twice),
        *(_Chain.residual, _Chain.elementwise, _Chain.elementwise, _Chain.column_sum, _Chain.gram),
    )
    for _ in range(pick((2, 1, 2, 3))):
        pick(steps)(chain)
    if pick.chance(4):
        chain.row("+=", f"{chain.latest}[m, n]")
    return {
        "name": "drawn", "sizes": chain.sizes, "tensors": chain.tensors, "compute": chain.compute
    }  # fmt: skip
