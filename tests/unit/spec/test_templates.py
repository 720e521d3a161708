"""Templates may name what exists and nothing that could grow or reach outside."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from hwgen.codegen.templates import Fields as GivenFields
from hwgen.codegen.templates import render
from hwgen.spec.templates import (
    FILTERS,
    LITERAL,
    NUMBER,
    TESTS,
    TEXT,
    Fields,
    Items,
    Shape,
    TemplateError,
    check_template,
)

VARIABLES: dict[str, Shape] = {
    "dst": Fields({"address": TEXT, "memory": Fields({"name": TEXT, "id": NUMBER})}),
    "loops": Items(Fields({"extent": NUMBER, "stride": Fields({"dst": NUMBER})})),
    "entries": Items(NUMBER, 2),
    "nothing": Items(NUMBER, 0),
    "imm": LITERAL,
    "N": NUMBER,
}
VALUES: dict[str, object] = {
    "dst": GivenFields({"address": "x", "memory": GivenFields({"name": "m", "id": 1})}),
    "loops": [GivenFields({"extent": 4, "stride": GivenFields({"dst": 2})})],
    "entries": [0, 1],
    "nothing": [],
    "imm": 2.5,
    "N": 4,
}


@pytest.mark.parametrize(
    "text",
    [
        "f({{ dst.address }}, {{ dst.memory.id }}, {{ dst['address'] }});",
        "{% for l in loops %}{{ l.extent }}{{ ', ' if not loop.last }}{% endfor %}",
        "{{ loops | length }} {{ loops[0].stride.dst }} {{ loops | length * N - 1 }}",
        "{{ scale | default(0) }} {{ dst.stride | default(dst.address) }}",
        "{% if scale is defined %}1{% elif N > 3 and N % 2 == 0 %}2{% else %}3{% endif %}",
        "{% set k = N * 2 %}{{ k + 1 }}",
        "{% for l in loops %}{{ l.stride.src | default(0) }}{% endfor %}",
        "{{ entries | last }} {{ entries[-1] + 1 }} {{ (loops | first).extent }}",
        "{{ 'a' if imm > 2 else N }} {{ imm | int + 1 }} {{ dst.memory.name | upper | trim }}",
        "{% if N in entries and 'x' in dst.address %}{{ N }}{% endif %}",
    ],
)
def test_accepted(text: str) -> None:
    check_template(text, VARIABLES)
    render(text, VALUES, None, "emit")


GIVEN = ("dst", "dst.address", "loops", "entries", "nothing", "imm", "N", "loops[0]", "'x'", "1.5")
OPERATORS = ("+", "-", "*", "//", "%", "<", ">=", "==", "in", "not in", "and", "or")
USES = (
    *(f"{{{{ @ | {name} }}}}" for name in sorted(FILTERS)),
    *(f"{{% if @ is {test} %}}1{{% endif %}}" for test in TESTS),
    *(f"{{{{ @ {operator} {other} }}}}" for operator in OPERATORS for other in GIVEN),
    "{{ @ }}", "{{ -@ }}", "{{ @[0] }}", "{{ @['id'] }}", "{{ @.id }}", "{{ entries[@] }}",
    "{{ @ if N else 1 }}", "{{ 1 if @ else 2 }}", "{{ @ | default(N) }}", "{{ not @ }}",
    "{% for e in @ %}{{ e }}{% endfor %}", "{% set e = @ %}{{ e }}",
)  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_accepted_templates_are_rendered(use: str) -> None:
    """Every filter, test and operator over every kind of value is refused when the file is read, or
    is rendered without Python's own words for objects. Items that are computed may be missing."""
    for given in GIVEN:
        text = use.replace("@", given)
        with suppress(TemplateError):
            check_template(text, VARIABLES)
            if text != "{{ entries[N] }}":
                assert not re.search(r"object at|[\[<]", render(text, VALUES, None, "emit")), text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{{ src }}", "H125"),
        ("{{ dst.adress }}", "H125"),
        ("{{ dst['size'] }}", "H125"),
        ("{{ nothing | last }}", "H125"),
        ("{{ entries[2] }}", "H125"),
        ("{{ entries[-3] }}", "H125"),
        ("{{ dst.memory.id.x }}", "H125"),
        ("{{ dst.address | hexadecimal }}", "H125"),
        ("{{ N is prime }}", "H125"),
        ("{% for l in loops %}{{ l.extend }}{% endfor %}", "H125"),
        ("{% for l in loops %}{% endfor %}{{ l }}", "H125"),
        ("{{ loop.index }}", "H125"),
        ("{{ dst.__class__ }}", "H125"),
        ("{{ ''.__class__ }}", "H125"),
        ("{{ self }}", "H125"),
        ("{{ src | default(sc) }}", "H125"),
        ("{{ dst.address", "H124"),
        ("{% for %}", "H124"),
        ("{% include 'x' %}", "H124"),
        ("{{ dst | last }}", "H124"),
        ("{{ dst.address | first }}", "H124"),
        ("{{ dst.address | int }}", "H124"),
        ("{{ imm + 1 }}", "H124"),
        ("{{ dst }}", "H124"),
        ("{{ entries | last(1) }}", "H124"),
        ("{{ scale | default(*entries) }}", "H124"),
        ("{{ dst.address > 3 }}", "H124"),
        ("{% for l in N %}{% endfor %}", "H124"),
        ("{% import 'x' as y %}", "H124"),
        ("{% macro f() %}{% endmacro %}", "H124"),
        ("{% set a %}x{% endset %}", "H124"),
        ("{% set a, b = N, N %}", "H124"),
        ("{% for a in loops recursive %}{% endfor %}", "H124"),
        ("{{ range(10) }}", "H124"),
        ("{{ N ** 9 }}", "H124"),
        ("{{ 'x' * 1000 }}", "H124"),
        ("{{ dst.address * 1000 }}", "H124"),
        ("{{ dst.address ~ dst.address }}", "H124"),
        ("{{ [1, 2] }}", "H124"),
        ("{{ " + "9" * 5000 + " }}", "H124"),
        ("{{ " + "(" * 3000 + "N" + ")" * 3000 + " }}", "H124"),
        ("{{ " + "N + " * 400 + "N }}", "H124"),
        ("{% for a in loops %}" * 4 + "{% endfor %}" * 4, "H124"),
    ],
)
def test_refused(text: str, code: str) -> None:
    with pytest.raises(TemplateError) as caught:
        check_template(text, VARIABLES)
    assert caught.value.code == code


def test_the_line_within_the_template() -> None:
    with pytest.raises(TemplateError) as caught:
        check_template("a\nb\n{{ c }}\n", VARIABLES)
    assert caught.value.line == 3
