"""The compiler of a chip's code, and what runs the programs that it makes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hwgen.errors import HwgenError
from hwgen.model.c_compiler import need_compiler, refused

SECONDS = 600
"""After which a compiler or a program has failed."""


def output(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A command, run to its end; one that cannot be started, or takes too long, has failed."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 126, "", str(error))


@dataclass(frozen=True)
class Tools:
    """A compiler and a runner of its programs as commands, and the compiler's flags."""

    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    runner: tuple[str, ...] = ()

    @cached_property
    def target(self) -> str:
        """The machine that the compiler makes programs for."""
        return output([*self.compiler, "-dumpmachine"]).stdout.strip()

    def build(self, folder: Path, name: str) -> Path:
        """Compile a folder's `main.c` to its `program`.

        Raises:
            HwgenError: H704 the compiler fails.
        """
        files = ["-w", str(folder / "main.c"), "-o", str(folder / "program"), "-lm"]
        done = output([*self.compiler, *self.flags, *files])
        if done.returncode != 0:
            raise refused(done, name)
        return folder / "program"

    def run(self, *words: str | Path) -> str:
        """The output of a program with its arguments; options of the runner come first.

        Raises:
            HwgenError: H055 it fails.
        """
        command = [*self.runner, *map(str, words)]
        done = output(command)
        if done.returncode != 0:
            raise HwgenError(
                "H055", "a kernel cannot be run", field="--run",
                found=done.stderr.strip()[-500:] or f"{command[0]}: exit status {done.returncode}",
                allowed=f"what runs programs for {self.target}; instructions are counted by QEMU's "
                "user mode emulation with plugins",
                repair="name another runner with --run, or other flags with --flags",
            )  # fmt: skip
        return done.stdout


def find_tools(
    compiler: Sequence[str], flags: Sequence[str], runner: Sequence[str], *, emulated: bool
) -> Tools:
    """The tools by name. Left out are the compiler found here and, for programs that are to be
    `emulated`, QEMU's emulator of the compiler's target.

    Raises:
        HwgenError: H703 no compiler; H055 no runner.
    """
    _need(runner, "H055", "--run", "install it, or name another one")
    _need(compiler, "H703", "--cc", "install it, or name another one")
    tools = Tools(tuple(compiler) or need_compiler(""), tuple(flags), tuple(runner))
    if runner or not emulated:
        return tools
    emulator = f"qemu-{tools.target.partition('-')[0]}"
    repair = "install QEMU's user mode emulation (package qemu-user), or name a runner with --run"
    _need([emulator], "H055", "--run", repair)
    return Tools(tools.compiler, tools.flags, (emulator,))


def _need(command: Sequence[str], code: str, option: str, repair: str) -> None:
    """Refuse a command whose program is missing."""
    if command and shutil.which(command[0]) is None:
        raise HwgenError(
            code, f"there is no program for {option}", field=option, repair=repair,
            found=f"{command[0]} is not on PATH", allowed="a program on PATH, or a path",
        )  # fmt: skip
