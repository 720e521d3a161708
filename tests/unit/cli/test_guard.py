"""Whatever goes wrong, a user sees a message and an exit status, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hwgen.cli import app, inspect, main
from hwgen.errors import HwgenError
from tests.models import HAVE_READER, fully_connected
from tests.samples import CHIPS_WITH_UNITS
from tests.sampling import THOROUGH, products, tiered

ROOT = Path(__file__).resolve().parents[3]


def raising(error: BaseException):
    def body(*_: object, **__: object) -> None:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (HwgenError("H123", "bad", repair="mend it"), 1, "error[H123]: bad\n  repair:  mend it"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "error[H792]: out of memory\n  repair:  smaller sizes"),
        (PermissionError(13, "Permission denied", "/x"), 1, "/x: error[H001]: permission denied"),
        (OSError(28, "No space left on device"), 1, "error[H009]: cannot write the output: no sp"),
        (OSError(28, "No space", "/x"), 1, "/x: error[H001]: no space"),
        (KeyError("k"), 1, "error[H000]: internal error: KeyError: 'k'"),
        (RecursionError(), 1, "error[H000]: internal error: RecursionError"),
        (AssertionError("a\n  b"), 1, "error[H000]: internal error: AssertionError: a b"),
    ],
)
def test_every_exception_becomes_a_message(
    error: BaseException,
    status: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("HWGEN_TRACEBACK", raising=False)
    monkeypatch.setattr(inspect, "check", raising(error))
    assert main(["check", "anything"]) == status
    captured = capsys.readouterr()
    assert captured.err.startswith(text)
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_the_traceback_of_a_defect_is_shown_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HWGEN_TRACEBACK", "1")
    monkeypatch.setattr(inspect, "check", raising(KeyError("k")))
    assert main(["check", "anything"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["check"],
        ["generate"],
        ["simulate", "--spec", "x"],
        ["simulate", "--spec", "x", "--workload", "y", "--engine", "fortran"],
        ["verify", "--spec", "x", "--examples", "0"],
        ["verify", "--spec", "x", "--jobs", "2", "--cluster", "tcp://127.0.0.1:9"],
        ["verify", "--spec", "x", "-o", "failures"],
        ["verify", "--workloads", "2", "--examples", "2"],
        ["generate", "--spec", "x", "-o", ""],
        ["generate", "--spec", "x", "--report", ""],
        ["generate", "--spec", "x", "--trace", ""],
        ["generate", "--spec", "x", "--workload", "y", "--script", ""],
        ["simulate", "--spec", "x", "--workload", "y", "--output-dir", ""],
        ["verify", "--spec", "x", "--seed", "-1"],
        ["check", "x", "--unknown"],
        ["simulate", "--spec", "x", "--workload", "y", "--workload", "z"],
        ["explain", "--spec", "x", "--workload", "y", "--workload", "z"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["", "check", "schema", "generate", "simulate", "verify", "explain", "help"]
)
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:\n    hwgen " in text
    assert "\x1b" not in text


@THOROUGH
def test_the_first_examples_run_as_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main(["--help"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.split("Examples:")[1].splitlines()]
    examples = [words[1:] for words in lines if words and words[0] == "hwgen"]
    assert len(examples) >= 3
    monkeypatch.chdir(tmp_path)
    if HAVE_READER:
        layer = fully_connected(np.random.default_rng(0), 1, 16, 16)
        Path("model.tflite").write_bytes(layer)
    for arguments in examples:
        assert main(arguments) == (0 if HAVE_READER or arguments[0] != "compile" else 1), arguments


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hwgen 0.")


def test_help_loads_nothing_heavy() -> None:
    heavy = (
        "numpy",
        "sympy",
        "islpy",
        "hypothesis",
        "rich",
        "ruamel",
        "lark",
    )
    code = (
        "import sys; from hwgen.cli import main; main(['generate', '--help'])\n"
        f"print(sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


RELU = ["generate", "--spec", "vta", "--workload", "relu", "--set", "M=1", "--set", "N=16"]


@pytest.mark.parametrize(
    ("words", "loads"),
    [
        ((*RELU,), False),
        ((*RELU, "--stage", "cost"), True),
    ],
    ids=str,
)
def test_formulas_alone_load_sympy(words: tuple[str, ...], loads: bool) -> None:
    code = (
        f"import sys; from hwgen.cli import main; main({list(words)!r})\n"
        "print('sympy' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == f"{loads}\n"


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hwgen", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_a_reader_that_goes_away_causes_no_message() -> None:
    process = start("schema")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(30) == 141
    assert errors == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("argument", ["schema", "--help", "--version"])
def test_a_full_disk_is_one_message(argument: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hwgen", argument],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error[H009]: cannot write ")
    assert done.stderr.endswith(": no space left on device\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("closed", "status", "text"),
    [
        (">&-", 1, "error[H009]: cannot write standard output: it is closed\n"),
        (">&- 2>&-", 1, ""),
        ("2>&-", 0, ""),
    ],
)
def test_a_closed_stream_is_no_crash(closed: str, status: int, text: str) -> None:
    command = f"'{sys.executable}' -m hwgen schema {closed}"
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stderr) == (status, text)


def test_text_that_the_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    spec = tmp_path / "größe.yaml"
    spec.write_text("name: [", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "hwgen", "check", str(spec)],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        check=False,
    )
    assert done.returncode == 1
    assert b"gr\\xf6\\xdfe.yaml:1" in done.stderr
    assert b"Traceback" not in done.stderr


# Under `nohup` and in CI interrupts are often ignored, and what is started inherits that.
SETTING = """
import os, signal, sys, time
from hwgen.cli import inspect, main
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
WAITING = "def body(*_, **__):\n    print('ready', flush=True)\n    while True: time.sleep(0.01)"
SHARED = """
def body(*_, **__):
    from hwgen.verify.executors import each
    sleep = "__import__('time').sleep(60)"
    print(list(each(eval, [sleep, f"print('ready', flush=True) or {sleep}", sleep], 2)))
"""
CAMPAIGN = """
def body(*_, **__):
    from pathlib import Path
    from hwgen.verify import campaign
    run = campaign.Runner._run
    def slow(self, case):
        if self.known:  # Not the first, which is run before Hypothesis draws any.
            print('ready', flush=True)
            time.sleep(60)
        return run(self, case)
    campaign.Runner._run = slow
    specs, workloads = Path('hw_specs'), Path('workloads')
    campaign.campaign(specs / 'cpu_generic.yaml', [workloads / 'add.yaml'], 9, 0)
"""
LOST = """
class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGNAL)
        for _ in range(1000): pass
def body(*_, **__):
    print('ready', flush=True)
    for _ in range(TIMES): Dying()
    while True: time.sleep(0.01)
"""


def _command(body: str) -> subprocess.Popen[str]:
    """`hwgen check` with another body, in a process group of its own, once it runs."""
    code = f"{SETTING}\n{body}\ninspect.check = body\nsys.exit(main(['check', 'x']))"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


COMMANDS = {"alone": WAITING, "shared": SHARED, "verify": CAMPAIGN}
ENDED = {signal.SIGINT: (130, "interrupted\n"), signal.SIGTERM: (143, "terminated\n")}


SENT = products([*COMMANDS], (0, 1), [*ENDED])


@pytest.mark.parametrize(("command", "everyone", "sent"), tiered(SENT, SENT[::2]))
def test_a_signal_ends_a_command_with_its_status(
    command: str, everyone: bool, sent: signal.Signals
) -> None:
    process = _command(COMMANDS[command])
    if everyone:
        os.killpg(process.pid, sent)  # As a terminal, or `timeout`, does.
    else:
        process.send_signal(sent)
    _, errors = process.communicate(timeout=30)  # Until the last process has gone.
    assert (process.returncode, errors) == ENDED[sent]


def test_these_tests_need_no_interrupts_where_they_are_run() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = _command(WAITING)
    finally:
        signal.signal(signal.SIGINT, before)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == ENDED[signal.SIGINT]


@pytest.mark.parametrize(
    ("sent", "status", "text"),
    [("SIGINT", 130, "interrupted\n"), ("SIGTERM", 143, "terminated\n")],
)
@pytest.mark.parametrize("times", [1, 30])
def test_a_signal_where_python_ignores_exceptions_is_not_lost(
    times: int, sent: str, status: int, text: str
) -> None:
    process = _command(LOST.replace("SIGNAL", sent).replace("TIMES", str(times)))
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (status, text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "FIFO"],
        ["generate", "--spec", "vta", "--workload", "FIFO"],
        ["generate", "--spec", "cpu_generic", "--workload", "gemm", "--script", "FIFO"],
        ["simulate", "--spec", "vta", "--workload", "gemm", "--input", "a=FIFO"],
    ],
)
def test_a_pipe_is_not_waited_for(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fifo = tmp_path / "slow.yaml"
    os.mkfifo(fifo)
    assert main([a.replace("FIFO", str(fifo)) for a in arguments]) == 1
    text = f"{fifo}: error[H001]: cannot read the file: it is none\n  found:   a pipe\n"
    assert capsys.readouterr().err.startswith(text)


def test_a_device_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = tmp_path / "zero.yaml"
    link.symlink_to("/dev/zero")
    assert main(["check", str(link)]) == 1
    assert "found:   a device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "reason"),
    [("loop.yaml", "too many levels of symbolic links"), ("gone", "no such file or directory")],
)
def test_a_link_that_leads_nowhere_says_so(
    target: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "loop.yaml"
    link.symlink_to(target)
    assert main(["check", str(link)]) == 1
    assert capsys.readouterr().err == (
        f"{link}: error[H001]: cannot read the file: {reason}\n  found:   a link to {target}\n"
    )


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("binary.yaml", bytes(range(256)), "H010"),
        ("empty.yaml", b"", "H010"),
        ("list.yaml", b"- 1\n", "H0"),
        ("text.txt", b"name: x\n", "H002"),
        ("bad.json", b"{", "H010"),
    ],
)
@pytest.mark.parametrize("as_workload", [False, True])
def test_files_that_are_no_specs_are_coded_errors(
    name: str,
    content: bytes,
    code: str,
    as_workload: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    chip = next(p for p in CHIPS_WITH_UNITS if p.stem == "vta")
    arguments = (
        ["generate", "--spec", str(chip), "--workload", str(path)]
        if as_workload
        else ["check", str(path)]
    )
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert f"error[{code}" in captured.err
    assert captured.out == ""


def test_the_application_is_complete() -> None:
    names = {c.name or getattr(c.callback, "__name__", "") for c in app.app.registered_commands}
    assert names == {
        "calibrate", "check", "compile", "explain", "explore", "generate", "help", "init", "list",
        "schema", "simulate", "verify",
    }  # fmt: skip
