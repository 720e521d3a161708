"""What an editor shows of chips and workloads: yaml-language-server, asked as editors ask it.

It runs where there is the npm package, on the PATH or as YAML_LANGUAGE_SERVER.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hwgen.cli import main

SERVER = os.environ.get("YAML_LANGUAGE_SERVER") or shutil.which("yaml-language-server")
pytestmark = pytest.mark.skipif(
    not SERVER,
    reason="no yaml-language-server: npm install yaml-language-server, and YAML_LANGUAGE_SERVER="
    "node_modules/.bin/yaml-language-server",
)

SETTINGS = {"yaml": {"validate": True, "schemaStore": {"enable": False}}}


class Editor:
    """A client of the server. A text has a `|` where the cursor is."""

    def __init__(self, folder: Path) -> None:
        assert SERVER
        self.folder, self.asked, self.told = folder, 0, list[dict[str, Any]]()
        self.server = subprocess.Popen(
            [Path(SERVER).resolve(), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        capable = {"textDocument": {"hover": {"contentFormat": ["markdown"]}}}
        self.ask(
            "initialize",
            {"processId": os.getpid(), "rootUri": folder.as_uri(), "capabilities": capable},
        )
        self.tell("initialized", {})
        self.tell("workspace/didChangeConfiguration", {"settings": SETTINGS})

    def close(self) -> None:
        self.server.kill()
        self.server.communicate()

    def tell(self, method: str, given: object) -> None:
        self._send({"method": method, "params": given})

    def ask(self, method: str, given: object) -> Any:
        self.asked += 1
        self._send({"id": self.asked, "method": method, "params": given})
        while True:
            got = self._receive()
            if got.get("id") == self.asked and "method" not in got:
                assert "error" not in got, got
                return got["result"]
            self.told.append(got)

    def complete(self, file: str, text: str) -> dict[str, str]:
        """What may stand at the cursor, with its documentation."""
        found = self._at_cursor("textDocument/completion", file, text)
        return {i["label"]: _text(i.get("documentation", "")) for i in found["items"]}

    def hover(self, file: str, text: str) -> str:
        return _text(self._at_cursor("textDocument/hover", file, text)["contents"])

    def diagnostics(self, file: str, text: str) -> list[tuple[int, str]]:
        """Lines, from 0, and what is wrong there."""
        address = self._open(file, text)
        while True:
            told = self.told.pop(0) if self.told else self._receive()
            if told.get("method") != "textDocument/publishDiagnostics":
                continue
            if told["params"]["uri"] == address:
                found = told["params"]["diagnostics"]
                return [(d["range"]["start"]["line"], d["message"]) for d in found]

    def _at_cursor(self, method: str, file: str, text: str) -> Any:
        before, after = text.split("|", 1)
        line, character = before.count("\n"), len(before) - before.rfind("\n") - 1
        given = {
            "textDocument": {"uri": self._open(file, before + after)},
            "position": {"line": line, "character": character},
        }
        return self.ask(method, given)

    def _open(self, file: str, text: str) -> str:
        address = (self.folder / file).as_uri()
        item = {"uri": address, "languageId": "yaml", "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": item})
        return address

    def _send(self, message: dict[str, Any]) -> None:
        assert self.server.stdin
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.server.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        """The next message; requests of the server's are answered with nothing."""
        assert self.server.stdout
        size = 0
        while line := self.server.stdout.readline().strip():
            key, _, value = line.partition(b":")
            size = int(value) if key.lower() == b"content-length" else size
        assert size, "the server went away"
        got = json.loads(self.server.stdout.read(size))
        if "method" in got and "id" in got:
            self._send({"id": got["id"], "result": None})
        return got


def _text(shown: str | dict[str, str]) -> str:
    return shown if isinstance(shown, str) else shown["value"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `hwgen init` writes."""
    made = tmp_path_factory.mktemp("editor")
    before = Path.cwd()
    os.chdir(made)
    try:
        assert main(["init", "first"]) == 0
    finally:
        os.chdir(before)
    return made


@pytest.fixture(scope="module")
def editor(folder: Path) -> Iterator[Editor]:
    made = Editor(folder)
    yield made
    made.close()


@pytest.fixture
def chip(folder: Path) -> str:
    return (folder / "first.yaml").read_text()


@pytest.fixture
def gemm(folder: Path) -> str:
    return (folder / "gemm.yaml").read_text()


def test_what_init_writes_has_no_error(editor: Editor, chip: str, gemm: str) -> None:
    assert editor.diagnostics("a.yaml", chip) == []
    assert editor.diagnostics("b.yaml", gemm) == []


def test_fields_are_completed(editor: Editor, chip: str, gemm: str) -> None:
    memory = chip.replace("memories:", "memories:\n  new:\n    |\n", 1)
    found = editor.complete("c.yaml", memory)
    assert {"kind", "dtype", "entry", "size", "banks"} <= set(found)
    assert found["size"] == (
        "Capacity, as `32 KiB` or a number of bytes; left out: a workspace without a limit. Not "
        "for off-chip memory."
    )
    assert "MemorySchema" not in found, "definitions are called as people call them"
    intrinsic = chip[: chip.index("\nintrinsics:")] + "\nintrinsics:\n  new:\n    |\n"
    assert {"unit", "semantics", "operands", "emit"} <= set(editor.complete("d.yaml", intrinsic))
    tensors = gemm.replace("tensors:", "tensors:\n  new:\n    |\n", 1)
    assert {"type", "constant"} <= set(editor.complete("e.yaml", tensors))


def test_values_are_completed(editor: Editor, chip: str) -> None:
    kind = chip.replace("memories:", "memories:\n  new:\n    kind: |\n", 1)
    assert set(editor.complete("f.yaml", kind)) == {"offchip", "scratchpad", "workspace"}
    order = chip[: chip.index("synchronization:")] + "synchronization:\n  kind: |\n"
    kinds = {"tokens", "barrier", "events", "scoreboard", "none"}
    assert set(editor.complete("g.yaml", order)) == kinds


def test_a_field_says_what_it_is(editor: Editor, chip: str, gemm: str) -> None:
    assert "One address space" in editor.hover("h.yaml", chip.replace("act: {", "a|ct: {", 1))
    said = editor.hover("i.yaml", chip.replace("semantics:", "sem|antics:", 1))
    assert "Statements over the iterators" in said
    said = editor.hover("j.yaml", gemm.replace("compute:", "com|pute:", 1))
    assert "Statements, in order." in said


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("semantics:", "semantic:", "Property semantic is not allowed."),
        ("latency_cycles:", "latency_cycle:", "Property latency_cycle is not allowed."),
        ("kind: scratchpad", "kind: scratchpd", "Value is not accepted."),
    ],
)
def test_a_misspelt_word_is_marked(
    right: str, wrong: str, says: str, editor: Editor, chip: str
) -> None:
    at = chip[: chip.index(right)].count("\n")
    found = editor.diagnostics(f"wrong-{wrong[:-1]}.yaml", chip.replace(right, wrong, 1))
    assert [line for line, said in found if said.startswith(says)] == [at]


def test_a_misspelt_word_of_a_workload_is_marked(editor: Editor, gemm: str) -> None:
    found = editor.diagnostics("k.yaml", gemm.replace("constant: true", "constnt: true"))
    assert [said for _, said in found] == ["Property constnt is not allowed."]
