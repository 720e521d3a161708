"""`hwgen.compile`: a model and a chip in, a network that runs, reports and writes itself out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from hwgen.codegen.firmware_build import firmware_flags, machine_flags
from hwgen.errors import HwgenError, Location
from hwgen.model.c_compiler import object_bytes
from hwgen.model.inputs import bind_inputs
from hwgen.model.native import runs_here
from hwgen.model.numeric import STORAGE, Array
from hwgen.network.bounds import bounded_outputs
from hwgen.network.emit import Emitter
from hwgen.network.example import Sample
from hwgen.network.graph import Graph
from hwgen.network.kernels import LayerKernel, Progress, compile_layers, untold
from hwgen.network.layers import kernel_names, network_name
from hwgen.network.onnx_reader import read_onnx
from hwgen.network.operators.table import layers_of
from hwgen.network.runner import CRunner, LayerByLayer, Watch, simulator, unwatched
from hwgen.network.steps import Plan, Step, plan_network
from hwgen.network.tflite_reader import read_tflite
from hwgen.network.weights import Weights
from hwgen.passes.phase import DEFAULTS, SearchOptions
from hwgen.polyhedral.schedule.requested import find_chip, unfit
from hwgen.report.output import write_files
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.shown import Brief
from hwgen.spec.typecheck import integer_range, is_float
from hwgen.spec.workload import Role, Tensor, Workload
from hwgen.verify.executors import Executor, Workers

if TYPE_CHECKING:
    from hwgen.network.compare import Comparison, Runtime

Engine = Literal["auto", "c", "python"]
"""As of `hwgen.build`: the emitted C, compiled here; the simulator; or the C where it runs here."""

Target = Literal["host", "firmware"]
"""The machine that an example of the folder is for; with `firmware` it has no C library."""

READERS: Mapping[str, Callable[[Path, str], Graph]] = {".onnx": read_onnx, ".tflite": read_tflite}
"""By a file's suffix: what makes a graph of it."""


def read_graph(model: Path | str) -> Graph:
    """The graph of a model's file.

    Raises:
        HwgenError: H001 where the file cannot be read; H801 no model; H046 a package is missing.
    """
    path = Path(model)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise HwgenError(
            "H801",
            "this is no file of a model",
            location=Location(str(path)),
            found=path.suffix or "a name without a suffix",
            allowed=", ".join(READERS),
            repair="name a file that ends so",
        )
    try:
        return reader(path, path.stem)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        where = Location(str(path))
        raise HwgenError("H001", f"{reason[0].lower()}{reason[1:]}", location=where) from error


def compile_model(
    model: Path | str,
    chip: HardwareSpec | Path | str,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    timeout: float | None = None,
    workers: Executor | None = None,
    engine: Engine = "auto",
    target: Target = "host",
    options: SearchOptions = DEFAULTS,
    cached: bool = False,
    trust: bool = False,
    progress: Progress = untold,
) -> Network:
    """Compile a model, layer by layer, for a chip.

    Args:
        model: a `.tflite` or an `.onnx` file.
        chip: as of `hwgen.build`.
        jobs: how many processes compile.
        cluster: the address of a Dask scheduler, whose workers compile instead.
        timeout: seconds that a worker may take for one kernel; None: as long as it takes.
        workers: who compiles, in place of the three before.
        engine: who computes when the network is called.
        target: `firmware` for a folder whose example needs no C library.
        options: of the search for each kernel.
        cached: whether results of searches are kept on disk.
        trust: as of `hwgen.build`.
        progress: told of each kernel that is compiled.

    Raises:
        HwgenError: H050 another argument than these; H801 no model; H046 a package is missing; H803
            operators that have no statements here; H048 a cluster cannot be used; H049, H060 work
            is given up; what `build` raises of a layer.
    """
    for argument, given, known in (("engine", engine, Engine), ("target", target, Target)):
        if given not in get_args(known):
            raise unfit(argument, repr(given), ", ".join(get_args(known)))
    graph = read_graph(model)
    layers = layers_of(graph)
    hardware, _ = find_chip(chip, trust=trust)
    name = network_name(graph, hardware)
    names = kernel_names(name, layers)
    with nullcontext(workers) if workers else Workers(jobs, cluster, timeout).executor() as own:
        kernels = compile_layers(
            names, hardware, workers=own, options=options, cached=cached, progress=progress
        )
    plan = plan_network(name, graph, hardware, layers, kernels)
    return Network(plan, engine, target)


@dataclass(frozen=True, repr=False, eq=False)
class Network(Brief):
    """A model compiled for a chip: a function of arrays, with figures and a folder of C.

    >>> net = hwgen.compile("model.tflite", "my_chip")
    >>> y = net(x)
    """

    plan: Plan
    wanted: Engine = "auto"
    target: Target = "host"

    @property
    def name(self) -> str:
        """The C function's name."""
        return self.plan.name

    @property
    def layers(self) -> tuple[Step, ...]:
        """Its layers with their kernels, in order."""
        return self.plan.steps

    @cached_property
    def kernels(self) -> tuple[LayerKernel, ...]:
        """Each once, however many layers share it."""
        return tuple({step.kernel.name: step.kernel for step in self.plan.steps}.values())

    @cached_property
    def engine(self) -> Literal["c", "python"]:
        """Who computes."""
        if self.wanted != "auto":
            return self.wanted
        return "c" if runs_here(self.plan.hardware) else "python"

    @cached_property
    def weights(self) -> Weights:
        """Its constants, as kernels read them."""
        return Weights(self.name, self.plan.steps, self.plan.hardware)

    @cached_property
    def files(self) -> dict[str, str]:
        """The files of its folder by name."""
        return self._emitter.files(self.sample(0), self.kernels)

    @cached_property
    def _emitter(self) -> Emitter:
        return Emitter(self.plan, self.weights, self.target == "firmware")

    @cached_property
    def code_bytes(self) -> Mapping[str, int] | None:
        """By kernel and for the network's own calls, the bytes of code and tables in the object
        that the compiler here makes with `-Os`; None without a compiler, for instructions that this
        machine lacks, or where text of a spec that is not trusted is in it.

        Raises:
            HwgenError: H704 where the compiler refuses a file.
        """
        if any(kernel.foreign for kernel in self.kernels):
            return None
        named = {self.name: f"{self.name}.c", **{k.name: k.source for k in self.kernels}}
        machine = machine_flags(self.plan.hardware)
        flags = (*firmware_flags(self.plan.hardware), *machine, "-Os")
        found = object_bytes(self.files, tuple(named.values()), flags, required=not machine)
        return found and {name: found[file] for name, file in named.items()}

    def report(self) -> str:
        """Its figures, layer by layer and in total, as text."""
        from hwgen.network.report import report_text

        return report_text(self)

    def compare(self, samples: int = 4, runtime: Runtime | None = None) -> Comparison:
        """Compare the output of every layer with the model's own runtime, or with another one: a
        function from inputs to the model's tensors, those that it knows, all by name.

        Raises:
            HwgenError: H805 with the first layer that differs; H046 without the runtime's package.
        """
        from hwgen.network.compare import compare

        return compare(self, samples, runtime)

    @property
    def cycles(self) -> int:
        """Modelled cycles of all layers, one after the other."""
        return sum(step.kernel.figures.cycles for step in self.plan.steps)

    def __call__(self, /, *places: object, **named: object) -> Array | tuple[Array, ...]:
        """The output, or all of them in the model's order, as new arrays; inputs as of a kernel.

        Raises:
            HwgenError: H051, H052, H053 other inputs; as a kernel's call.
        """
        found = self.run(bind_inputs(self._signature, places, named))
        outputs = tuple(found[name] for name in self.plan.graph.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, inputs: Mapping[str, Array], watch: Watch = unwatched) -> dict[str, Array]:
        """Outputs by name, for inputs by name; `watch` sees each layer's output."""
        return self._runner.run(inputs, watch)

    @cached_property
    def _runner(self) -> CRunner | LayerByLayer:
        if self.engine == "c":
            return CRunner(self._emitter, self._emitter.files(None, self.kernels), self.kernels)
        return simulator(self.plan)

    @cached_property
    def _signature(self) -> Workload:
        """Its inputs and outputs in the form of a workload's, for the checks of a call."""
        graph = self.plan.graph
        place = Location(graph.file)

        def declared(names: tuple[str, ...], role: Role) -> tuple[Tensor, ...]:
            found = (graph.tensor[n] for n in names)
            return tuple(Tensor(t.name, t.dtype, t.shape, role, False, place) for t in found)

        tensors = (*declared(graph.inputs, "input"), *declared(graph.outputs, "output"))
        return Workload(self.name, (), tensors, (), place)

    def draw(self, seed: int, *, extremes: bool = False) -> dict[str, Array]:
        """An array for every input: the whole range of its type, or only its ends; of floats the
        range from -1 to 1."""
        found: dict[str, Array] = {}
        for n, name in enumerate(self.plan.graph.inputs):
            tensor = self.plan.graph.tensor[name]
            generator = np.random.default_rng([seed, n])
            if is_float(tensor.dtype):
                low, high = -1, 1
            else:
                low, high = integer_range(tensor.dtype)
            if extremes:
                drawn = np.where(generator.integers(0, 2, tensor.shape), low, high)
            elif is_float(tensor.dtype):
                drawn = generator.uniform(low, high, tensor.shape)
            else:
                drawn = generator.integers(low, high, tensor.shape, endpoint=True)
            found[name] = drawn.astype(STORAGE[tensor.dtype])
        return found

    def sample(self, seed: int) -> Sample:
        """Drawn inputs, the outputs that the layers' statements give without any chip, and how far
        rounding may bring floats from them."""
        inputs = self.draw(seed)
        return Sample(inputs, *bounded_outputs(self.plan, inputs))

    def save(self, folder: Path | str) -> list[Path]:
        """Write its folder, all files or none; returns their paths.

        Raises:
            HwgenError: H009 where something cannot be written.
        """
        return write_files(Path(folder), self.files)

    def __str__(self) -> str:
        return self.report()

    def brief(self) -> str:
        plan = self.plan
        return (
            f"{self.name} on {plan.hardware.name}: {len(plan.steps)} layers, "
            f"{len(self.kernels)} kernels, {self.cycles:,} cycles, "
            f"{plan.arena.bytes:,} bytes of arena"
        )
