"""Reading YAML and JSON: what is data, where it stood, and the bounds on untrusted input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.spec.source import Data, parse_document, read_document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-3", -3), ("0x1F", 31), ("0o17", 15), ("0", 0), ("1.5", 1.5), ("1e3", 1000.0),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("on", "on"), ("no", "no"), ("yes", "yes"), ("y", "y"), ("12:30", "12:30"),
        ("1_000", "1_000"), ("'012'", "012"), ('"12"', "12"), ("1..3", "1..3"), (".inf", ".inf"),
        ("2001-01-01", "2001-01-01"), ("0..7", "0..7"), ("+5", 5),
    ],
)  # fmt: skip
def test_scalars_are_yaml_1_2(text: str, value: Data) -> None:
    data = parse_document(f"a: {text}\n", "f.yaml").data
    assert isinstance(data, dict)
    assert data["a"] == value
    assert type(data["a"]) is type(value)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: 012", "H012"),
        ("a: -007", "H012"),
        ("a: 99999999999999999999999", "H012"),
        ("a: 1e999", "H012"),
        ("a: 1\na: 2", "H011"),
        ("a: {b: 1, 'b': 2}", "H011"),
        ("a: [1, 2", "H010"),
        ("a: b: c", "H010"),
        ("\ta: 1", "H010"),
        ("a: \x07", "H010"),
        ('a: "\\z"', "H010"),
        ("", "H010"),
        ("# nothing\n", "H010"),
        ("a: 1\n---\nb: 2", "H014"),
        ("a: !!python/name:os.system x", "H014"),
        ("a: !custom x", "H014"),
        ("a: &x [*x]", "H014"),
        ("a: *nowhere", "H014"),
        ("? [1, 2]\n: 3", "H014"),
        ("a: {<<: 3}", "H014"),
        ("a: " + "[" * 200 + "]" * 200, "H013"),
        ("a: " + "{b: " * 200 + "}" * 200, "H013"),
        ("\n".join(f"k{i}: {i}" for i in range(10_001)), "H013"),
    ],
)
def test_bad_yaml(text: str, code: str) -> None:
    with pytest.raises(HwgenError) as caught:
        parse_document(text, "f.yaml")
    assert caught.value.code == code


def test_billion_laughs() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(HwgenError) as caught:
        parse_document("\n".join(lines), "f.yaml")
    assert caught.value.code == "H013"


def test_billion_laughs_by_merge() -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    for i in range(1, 25):
        pairs = f"x: *a{i - 1}, y: *a{i - 1}"
        lines.append(f"a{i}: &a{i} {{{pairs}, <<: *a{i - 1}}}")
    with pytest.raises(HwgenError) as caught:
        parse_document("\n".join(lines), "f.yaml")
    assert caught.value.code == "H013"


def test_merge_keys() -> None:
    text = """
    base: &base {a: 1, b: 2}
    other: &other {b: 3, c: 4}
    first: {<<: *base, b: 5}
    last: {b: 5, <<: *base}
    both: {<<: [*base, *other]}
    """
    data = parse_document(text, "f.yaml").data
    assert isinstance(data, dict)
    assert data["first"] == data["last"] == {"a": 1, "b": 5}
    assert data["both"] == {"a": 1, "b": 2, "c": 4}


def test_positions() -> None:
    document = parse_document("a: 1\nb:\n  - {c: 'x + y'}\n  - z\n", "f.yaml")
    assert str(document.locate(("a",))) == "f.yaml:1:4"
    assert str(document.locate(("b",), key=True)) == "f.yaml:2:1"
    assert str(document.locate(("b", 0, "c"))) == "f.yaml:3:9"
    assert str(document.locate(("b", 0, "c"), offset=4)) == "f.yaml:3:14"
    assert str(document.locate(("b", 1), offset=0)) == "f.yaml:4:5"
    assert str(document.locate(("b", 7, "nowhere"))) == "f.yaml:3:3"


def test_files(tmp_path: Path) -> None:
    def code(path: Path) -> str:
        with pytest.raises(HwgenError) as caught:
            read_document(path)
        assert str(path) in str(caught.value)
        return caught.value.code

    assert code(tmp_path / "missing.yaml") == "H001"
    assert code(tmp_path / "chip.toml") == "H002"
    assert code(tmp_path / "chip") == "H002"
    (tmp_path / "folder.yaml").mkdir()
    assert code(tmp_path / "folder.yaml") == "H001"
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe9\n")
    assert code(tmp_path / "latin.yaml") == "H010"
    (tmp_path / "huge.yaml").write_bytes(b"# " + b"x" * (1 << 19))
    assert code(tmp_path / "huge.yaml") == "H013"


def test_json_gives_the_same_data_and_positions(tmp_path: Path) -> None:
    data: Data = {"a": [1, -2, 2.5, True, None, 't\u00e9xt "q" \\ \n'], "b": {"c": {}, "d": []}}
    path = tmp_path / "f.json"
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")
    document = read_document(path)
    assert document.data == data
    assert document.locate(("a", 1)).line == 4
    assert document.locate(("b", "d"), key=True).line == 12


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "H010"), ("{", "H010"), ('{"a" 1}', "H010"), ('{"a": 1,}', "H010"), ("[1 2]", "H010"),
        ('{"a": 1} x', "H010"), ('{"a": NaN}', "H010"), ('{"a": .5}', "H010"), ("[+5]", "H010"),
        ('{"a": "\\q"}', "H010"), ('{"a": "x', "H010"), ("{a: 1}", "H010"), ('{"a": 012}', "H012"),
        ('{"a": 0x10}', "H010"), ('{"a": 1e999}', "H012"), ('{"a": 1, "a": 2}', "H011"),
        ("[" * 500, "H013"), ("[" + "1," * 20_000 + "1]", "H013"),
    ],
)  # fmt: skip
def test_bad_json(text: str, code: str) -> None:
    with pytest.raises(HwgenError) as caught:
        parse_document(text, "f.json", json=True)
    assert caught.value.code == code
