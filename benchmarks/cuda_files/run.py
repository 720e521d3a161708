"""Builds and runs the kernels beside this file, compares and times them.

python3 run.py [--compiler ...] [--limit 240] [--json FILE] [--build FOLDER]

Needs Python and the compiler alone; PyTorch, where there is one, is timed beside the kernels, and
`compute-sanitizer` reads some of them. Whatever one kernel does, the others go on. The exit status
is 1 where a kernel is wrong, fails to build or is objected to.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BUILD_SECONDS = 120.0
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
Result = dict[str, Any]


class Runner:
    """One run of everything. `results`: by group and number of the kernel in it."""

    def __init__(self, options: argparse.Namespace, manifest: dict[str, Any], folder: Path) -> None:
        self.options, self.manifest, self.folder = options, manifest, folder
        self.deadline = time.monotonic() + options.limit
        self.results: dict[tuple[int, int], Result] = {}
        self.programs: dict[int, Path] = {}

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def copy(self) -> None:
        """Sources where they are built; for the stand-in with launches that any C++ compiler
        takes."""
        shutil.copytree(HERE / "source", self.folder, dirs_exist_ok=True)
        if not self.options.stand_in:
            return
        launch = re.compile(self.manifest["launch"])
        for path in self.folder.glob("kernels/*.cu"):
            text = launch.sub(self.manifest["launched"], path.read_text())
            path.write_text(text)

    # Building

    def build(self, group: int, only: int | None = None) -> tuple[Path | None, str]:
        """The program of a group or of one kernel in it, None and the first error without one."""
        source = self.folder / f"group_{group:03d}.cu"
        target = source.with_suffix("" if only is None else f".{only}")
        command = [*shlex.split(self.options.compiler), str(source), "-o", str(target)]
        command += [] if only is None else [f"-DONLY={only}"]
        if self.left() < 5:
            return None, "no time left"
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=self.folder,
                timeout=min(BUILD_SECONDS, self.left()), errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None, "the compiler does not end"
        if done.returncode == 0:
            return target, ""
        lines = (done.stderr + done.stdout).strip().splitlines() or ["no message"]
        return None, next((x for x in lines if "error" in x.lower()), lines[0])[:300]

    def group(self, group: int) -> None:
        """Build a group and run it, if it is not timed."""
        cases = self.manifest["groups"][group]["cases"]
        program, message = self.build(group)
        if program is not None:
            self.programs[group] = program
            if not self.manifest["groups"][group]["timed"] and not self.options.build_only:
                self.run(group, program, range(len(cases)))
            return
        for n in range(len(cases)):
            alone, message = self.build(group, n) if len(cases) > 1 else (None, message)
            if alone is None:
                late = message == "no time left"
                self.note(group, n, "not run" if late else "build", message)
            elif not self.options.build_only:
                self.run(group, alone, [n])

    def note(self, group: int, number: int, kind: str, message: str = "") -> None:
        case = self.manifest["groups"][group]["cases"][number]
        self.results[group, number] = {
            "name": case["name"], "of": case["of"], "result": kind, "message": message,
        }  # fmt: skip

    # Running

    def run(self, group: int, program: Path, numbers: Any, timed: bool = False) -> None:
        """Run kernels in one process, after one that ended it in the next."""
        left = list(numbers)
        while left:
            if self.left() < 3:
                for n in left:
                    self.note(group, n, "not run", "no time left")
                return
            done, died, message = self.process(group, program, left[0], timed)
            for n in done:
                if n in left:
                    left.remove(n)
            if died is None and message:
                died = left[0] if left else None
            if died is not None:
                self.note(group, died, "wrong", message)
                left = [n for n in left if n > died]
            elif not done:
                for n in left:
                    self.note(group, n, "wrong", message or "the program runs no kernel")
                return

    def process(
        self, group: int, program: Path, first: int, timed: bool
    ) -> tuple[list[int], int | None, str]:
        """Which kernels ended, which one did not, and how."""
        data = self.folder / f"group_{group:03d}.bin"
        times = 1 if timed else self.options.repeats
        command = [str(program), str(data), str(first), str(times), str(int(timed))]
        noted = self.folder / f"{program.name}.errors"
        with noted.open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        done: list[int] = []
        now: int | None = None
        text = b""
        patience = self.options.most * (3 if timed else 1)
        while True:
            ready = select.select([process.stdout], [], [], min(patience, max(self.left(), 1)))[0]
            part = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                break
            *lines, text = (text + part).split(b"\n")
            for line in lines:
                word, number, *rest = line.decode(errors="replace").split(" ", 2)
                if word == "begin":
                    now = int(number)
                elif word == "end":
                    self.ended(group, int(number), rest[0])
                    done.append(int(number))
                    now = None if not timed else now
                elif word == "time":
                    launches, call = rest[0].split()
                    self.results[group, int(number)] |= {
                        "ms": float(launches), "call_ms": float(call),
                    }  # fmt: skip
        if not ready:
            process.kill()
            process.wait()
            return done, now, f"it does not end in {patience:.0f} s"
        process.wait()
        said = noted.read_text(errors="replace").strip().splitlines()
        if process.returncode == 0:
            return done, None, ""
        return done, now, f"it ends the process ({process.returncode}): {' '.join(said[-2:])[:300]}"

    def ended(self, group: int, number: int, message: str) -> None:
        if message == "ok":
            self.note(group, number, "passed")
            return
        found = re.match(r"(\w+) (\d+) (is .*)", message)
        if found is not None:
            name, at, rest = found.groups()
            shape = self.manifest["groups"][group]["cases"][number]["shapes"].get(name, [])
            place: list[int] = []
            left = int(at)
            for extent in reversed(shape):
                place.insert(0, left % extent)
                left //= extent
            message = f"{name}{place} {rest}"
        self.note(group, number, "wrong", message)

    # Sanitizers

    def sanitize(self, tool: str, group: int) -> Result:
        """What a tool finds in the kernels of a group."""
        data = self.folder / f"group_{group:03d}.bin"
        command = ["compute-sanitizer", "--tool", tool, "--print-limit", "20"]
        command += [str(self.programs[group]), str(data), "0", "1", "0"]
        found: Result = {"tool": tool, "group": group, "errors": None, "lines": []}
        if self.left() < 5:
            return {**found, "lines": ["no time left"]}
        # What is written before the kernel starts counts as written.
        environment = dict(os.environ, HARNESS_NO_POISON="1")
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=environment,
                timeout=max(1.0, min(60.0, self.left() - 2)), errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {**found, "lines": ["it does not end"]}
        text = done.stdout + done.stderr
        summary = re.search(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", text)
        if summary is not None:
            found["errors"] = int(summary[1] or summary[2])
        found["ran"] = len(re.findall(r"^end \d+", text, re.MULTILINE))
        if found["errors"] != 0:
            marked = [x.lstrip("= ") for x in text.splitlines() if x.startswith("=====")]
            said = (x for x in marked if x and not x.startswith(("Saved", "Host Frame", "COMPUTE")))
            found["lines"] = list(said)[:12]
        return found


# PyTorch


def torch_times(manifest: dict[str, Any]) -> tuple[str, dict[str, float]]:
    """What PyTorch is and takes, milliseconds by name of the kernel; empty without one."""
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return "", {}
    if not torch.cuda.is_available():
        return "", {}
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    found: dict[str, float] = {}
    for group in manifest["groups"]:
        for case in group["cases"] if group["timed"] else ():
            if case["timed"]["rival"]:
                try:
                    found[case["name"]] = timed(torch, rival(torch, **case["timed"]["rival"]))
                except Exception as error:
                    print(f"PyTorch, {case['name']}: {str(error)[:200]}")
    return f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}", found


def rival(torch: Any, of: str, sizes: dict[str, int]) -> Callable[[], Any]:
    """The same operation on arrays of its own."""

    def floats(*names: str) -> Any:
        return torch.randn(*(sizes[n] for n in names), device="cuda")

    def bytes_of(*names: str) -> Any:
        shape = [sizes[n] for n in names]
        return torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")

    functional = torch.nn.functional
    if of == "mm":
        a, b = floats("M", "K"), floats("K", "N")
        return lambda: torch.mm(a, b)
    if of == "int_mm":
        a, b = bytes_of("M", "K"), bytes_of("N", "K").t()
        return lambda: torch._int_mm(a, b).to(torch.int8)
    if of == "mv":
        a, x = floats("M", "K"), floats("K")
        return lambda: torch.mv(a, x)
    if of == "relu":
        a = floats("M", "N")
        return lambda: torch.relu(a)
    if of == "layernorm":
        a, g, b = floats("M", "N"), floats("N"), floats("N")
        return lambda: functional.layer_norm(a, (sizes["N"],), g, b, 1e-5)
    if of == "attention":
        q, k, v = (floats("L", "D")[None, None] for _ in range(3))
        return lambda: functional.scaled_dot_product_attention(q, k, v)
    if of == "linear_relu":
        x, w, b = floats("M", "K"), floats("K", "N"), floats("N")
        return lambda: torch.relu(torch.addmm(b, x, w))
    if of == "conv_nhwc":
        x = torch.randn(1, sizes["C"], sizes["H"], sizes["W"], device="cuda")
        w = torch.randn(sizes["O"], sizes["C"], sizes["R"], sizes["R"], device="cuda")
        x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
        return lambda: functional.conv2d(x, w, padding=sizes["P"])
    raise ValueError(of)


def timed(torch: Any, call: Callable[[], Any]) -> float:
    """Milliseconds of one call: median of 20 runs, each of several calls in a row."""
    found: list[float] = []
    times = 1
    for run in range(-3, 20):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            call()
        stop.record()
        stop.synchronize()
        ms = start.elapsed_time(stop)
        if run >= 0:
            found.append(ms / times)
        if run == -1:
            times = min(100, max(1, int(5 / max(ms, 1e-3))))
    return sorted(found)[len(found) // 2]


# What is printed


def table(rows: list[list[str]]) -> str:
    widths = [max(len(r[n]) for r in rows) for n in range(len(rows[0]))]
    lines: list[str] = []
    for row in [rows[0], ["-" * w for w in widths], *rows[1:]]:
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(c.rjust(w) for c, w in others)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def times_table(manifest: dict[str, Any], results: list[Result], rivals: dict[str, float]) -> str:
    rows = [["kernel", "ms", "GB/s", "Gop/s", "PyTorch ms", "ratio", "whole call ms"]]
    cases = {c["name"]: c for g in manifest["groups"] for c in g["cases"]}
    for result in results:
        if "ms" not in result or result["ms"] == 0:
            continue
        case, ms = cases[result["name"]]["timed"], result["ms"]
        theirs = rivals.get(result["name"])
        rows.append(
            [
                case["label"], f"{ms:.4f}", f"{case['bytes'] / ms / 1e6:.1f}",
                f"{case['operations'] / ms / 1e6:.1f}", f"{theirs:.4f}" if theirs else "-",
                f"{theirs / ms:.3f}" if theirs else "-", f"{result['call_ms']:.3f}",
            ]
        )  # fmt: skip
    return table(rows)


def target() -> str:
    """The option for this machine's GPU, asked for once."""
    asked = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    if shutil.which(asked[0]):
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
        found = re.match(r"(\d+)\.(\d+)\s", done.stdout)
        if found is not None:
            return f"-arch=sm_{found[1]}{found[2]}"
    return "-arch=native"


def counts(results: list[Result]) -> str:
    kinds = ("passed", "wrong", "build", "not run")
    rows = [["kernels", "passed", "wrong", "failed to build", "not run"]]
    for of in [*dict.fromkeys(r["of"] for r in results), ""]:
        mine = [r for r in results if of in ("", r["of"])]
        numbers = [str(sum(r["result"] == k for r in mine)) for k in kinds]
        rows.append([of or "all", *numbers])
    return table(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of everything")
    parser.add_argument("--most", type=float, default=20.0, help="seconds of one kernel")
    parser.add_argument("--repeats", type=int, default=5, help="races do not show in every run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--build", type=Path, help="folder of programs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--stand-in", action="store_true", help="build for this machine's host")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--sanitized", type=int, default=12, help="groups, of those that wait")
    options = parser.parse_args()
    if not options.compiler:
        stand_in = f"g++ -x c++ -std=c++17 -O1 -w -I{HERE / 'stand_in'}"
        options.compiler = stand_in if options.stand_in else f"nvcc -O3 -std=c++17 {target()}"
    manifest = json.loads((HERE / "manifest.json").read_text())
    folder = options.build or Path(tempfile.mkdtemp(prefix="kernels-"))
    runner = Runner(options, manifest, folder)
    start = time.monotonic()
    runner.copy()
    groups = manifest["groups"]
    # Those that take the compiler longest begin first.
    order = sorted(range(len(groups)), key=lambda g: -len(groups[g]["cases"]))
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(runner.group, order))
    print(f"built and run in {time.monotonic() - start:.0f} s", flush=True)
    rivals: dict[str, float] = {}
    versions = ""
    if not options.build_only:
        for n, group in enumerate(groups):
            if group["timed"] and n in runner.programs:
                runner.run(n, runner.programs[n], range(len(group["cases"])), timed=True)
        versions, rivals = ("", {}) if options.stand_in else torch_times(manifest)
    results = [runner.results[k] for k in sorted(runner.results)]
    print(counts(results))
    for result in results:
        if result["result"] not in ("passed", "not run"):
            print(f"{result['result']}: {result['name']}: {result['message']}")
    print()
    print(times_table(manifest, results, rivals))
    print(f"ratio: PyTorch's time over the kernel's. {versions}", flush=True)
    checks: list[Result] = []

    def save() -> None:
        report = {"compiler": options.compiler, "rival": versions, "kernels": results,
                  "rivals_ms": rivals, "sanitizers": checks}  # fmt: skip
        if options.json:
            options.json.write_text(json.dumps(report, indent=1))

    save()
    if shutil.which("compute-sanitizer") and not options.build_only and not options.stand_in:
        chosen = [n for n, g in enumerate(groups) if g["waits"] and n in runner.programs]
        work = [(tool, n) for n in chosen[: options.sanitized] for tool in TOOLS]
        with ThreadPoolExecutor(max(1, options.jobs // 2)) as pool:
            begun = [pool.submit(runner.sanitize, tool, n) for tool, n in work]
            checks = [x.result() for x in begun]
        rows = [["tool", "programs", "kernels", "errors", "no result"]]
        for tool in TOOLS:
            mine = [c for c in checks if c["tool"] == tool]
            ended = [c for c in mine if c["errors"] is not None]
            rows.append(
                [
                    tool, str(len(mine)), str(sum(c["ran"] for c in ended)),
                    str(sum(c["errors"] for c in ended)), str(len(mine) - len(ended)),
                ]
            )  # fmt: skip
        print(table(rows))
        for c in checks:
            if c["errors"] != 0:
                print(f"{c['tool']}, group {c['group']}:", *c["lines"], sep="\n  ")
    print(f"{time.monotonic() - start:.0f} s in all")
    save()
    if options.build is None:
        shutil.rmtree(folder, ignore_errors=True)
    bad = any(r["result"] in ("wrong", "build") for r in results)
    return int(bad or any(c["errors"] for c in checks))


if __name__ == "__main__":
    sys.exit(main())
