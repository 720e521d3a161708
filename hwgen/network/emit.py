"""A network as one folder of C: its kernels, called in order on an arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.codegen.c_names import C_TYPES, comment
from hwgen.codegen.emit_host import framed
from hwgen.codegen.firmware_build import Part, build_files
from hwgen.codegen.host_plan import alignment_macro
from hwgen.network.example import Sample, example
from hwgen.network.graph import Tensor
from hwgen.network.kernels import Argument, LayerKernel
from hwgen.network.steps import Plan, Step
from hwgen.network.weights import Weights


@dataclass(frozen=True, eq=False)
class Emitter:
    """The text of a network's files; `firmware`: without anything of a C library."""

    plan: Plan
    weights: Weights
    firmware: bool

    def files(self, sample: Sample | None, kernels: Sequence[LayerKernel]) -> dict[str, str]:
        """The folder: kernels, the network, its constants, an example where there is a sample, and
        what compiles them."""
        plan, name = self.plan, self.plan.name
        files: dict[str, str] = {}
        for kernel in kernels:
            files |= kernel.files
        files[f"{name}.h"], files[f"{name}.c"] = self.header(), self.source()
        constants = self.weights.files(self.summary)
        files |= constants
        if sample is not None:
            files["main.c"] = example(plan, sample, hosted=not self.firmware)
        parts = [
            Part(k.name, k.source, k.sources, k.model, (), "", k.workspace_bytes, k.status)
            for k in kernels
        ]
        parts.append(Part(name, f"{name}.c", tuple(constants), "", (), "", 0, status=True))
        texts = [(k.name, k.files[f"{k.name}.h"] + k.files[k.source]) for k in kernels]
        return files | build_files(parts, texts, plan.hardware)

    @property
    def summary(self) -> str:
        """The network in a line."""
        plan = self.plan
        return f"{plan.name}: {len(plan.steps)} layers on {plan.hardware.name}."

    def header(self) -> str:
        """Sizes, where inputs and outputs lie, and the one function."""
        plan, name = self.plan, self.plan.name
        head = [
            f"/* {comment(self.summary)}",
            " *",
            " * Write the inputs into the arena, call the function, and read the outputs from the",
            f" * arena. Nothing takes memory from a heap. {name} returns 0, or the number of the",
            " * layer that failed, from 1. Calls that overlap in time need an arena each. */",
        ]
        body = [
            f"#define {name}_ARENA_BYTES {max(plan.arena.bytes, 1)}",
            f"#define {name}_ARENA_ALIGNMENT {plan.arena.align}",
            f"#define {name}_LAYERS {len(plan.steps)}",
            "",
            "/* Begins a declaration: aligned as the arena is. */",
            *alignment_macro(name, plan.arena.align),
        ]
        graph = plan.graph
        for role, names in (("input", graph.inputs), ("output", graph.outputs)):
            for n, tensor in enumerate(graph.tensor[t] for t in names):
                kind, own = C_TYPES[tensor.dtype], f"{name}_{role}{n}"
                body += [
                    "",
                    f"/* {comment(_shown(tensor))} */",
                    f"#define {own}_BYTES {tensor.bytes}",
                    f"static inline {kind} *{own}(void *arena)",
                    "{",
                    f"  return ({kind} *)(void *)((char *)arena + {plan.offset(tensor.name)});",
                    "}",
                ]
        body += [
            "",
            "/* The inputs are not kept: their bytes serve later layers. */",
            f"int {name}(void *arena);",
        ]
        return framed(name, head, ["<stdint.h>"], body)

    def source(self) -> str:
        """The calls, in order."""
        plan, name = self.plan, self.plan.name
        headers = dict.fromkeys(step.kernel.name for step in plan.steps)
        lines = [
            f"/* {comment(self.summary)} */",
            f'#include "{name}.h"',
            *(f'#include "{header}.h"' for header in headers),
            "",
            "/* Define it to look at each layer's output, or to take the time. */",
            f"#ifndef {name}_AFTER_LAYER",
            f"#define {name}_AFTER_LAYER(layer, output) ((void)0)",
            "#endif",
            "",
            *(f"extern {declared};" for declared in self.weights.declarations),
            "",
            f"int {name}(void *arena)",
            "{",
            "  char *at = (char *)arena;",
            *(line for step in plan.steps for line in self._call(step)),
            *(["  (void)at;"] if not plan.steps else []),
            "  return 0;",
            "}",
            "",
        ]
        return "\n".join(lines)

    def _call(self, step: Step) -> list[str]:
        plan, kernel = self.plan, step.kernel
        made = plan.graph.tensor[step.layer.output[1]]
        call = f"{kernel.name}({', '.join(self._arguments(step))})"
        image = plan.kept.get(plan.buffer[made.name])
        laid = f", as the chip's image {list(image.outer + image.lanes)}" if image else ""
        run = [f"  {call};"]
        if kernel.status:
            run = [f"  if ({call} != 0)", f"    return {step.number + 1};"]
        return [
            f"  /* {step.number}: {comment(f'{step.layer.operator}, {_shown(made)}{laid}')} */",
            *run,
            f"  {plan.name}_AFTER_LAYER({step.number}, at + {plan.offset(made.name)});",
        ]

    def _arguments(self, step: Step) -> list[str]:
        tensors = dict((*step.layer.inputs, step.layer.output))
        found = [
            self._activation(argument, tensors[argument.tensor])
            if argument.tensor in tensors
            else self.weights.of(step, argument)
            for argument in step.kernel.arguments
        ]
        room = f"at + {self.plan.arena.offset(step.workspace)}" if step.workspace else "0"
        return [*found, room]

    def _activation(self, argument: Argument, tensor: str) -> str:
        const = "" if argument.output else "const "
        place = f"(void *)(at + {self.plan.offset(tensor)})"
        return f"({const}{C_TYPES[argument.dtype]} *){place}"


def _shown(tensor: Tensor) -> str:
    """A tensor in words, with its scale where it has one."""
    shape = "".join(f"[{n}]" for n in tensor.shape)
    given = tensor.quantisation
    scale = ""
    if given is not None and not given.per_channel:
        scale = f", scale {given.scales[0]:.9g}, zero point {given.zero_points[0]}"
    return f"{tensor.name}: {tensor.dtype} {shape}{scale}"
