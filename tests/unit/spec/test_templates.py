"""Templates may name what exists and nothing that could grow or reach outside."""

from __future__ import annotations

import pytest

from hwgen.spec.templates import NUMBER, TEXT, Fields, Items, Shape, TemplateError, check_template

VARIABLES: dict[str, Shape] = {
    "dst": Fields({"address": TEXT, "memory": Fields({"name": TEXT, "id": NUMBER})}),
    "loops": Items(Fields({"extent": NUMBER, "stride": Fields({"dst": NUMBER})})),
    "N": NUMBER,
}


@pytest.mark.parametrize(
    "text",
    [
        "f({{ dst.address }}, {{ dst.memory.id }}, {{ dst['address'] }});",
        "{% for l in loops %}{{ l.extent }}{{ ', ' if not loop.last }}{% endfor %}",
        "{{ loops | length }} {{ loops[0].stride.dst }} {{ loops | length * N - 1 }}",
        "{{ imm | default(0) }} {{ dst.stride | default(dst.address) }}",
        "{% if imm is defined %}1{% elif N > 3 and N % 2 == 0 %}2{% else %}3{% endif %}",
        "{% set k = N * 2 %}{{ k + 1 }}",
        "{% for l in loops %}{{ l.stride.src | default(0) }}{% endfor %}",
    ],
)
def test_accepted(text: str) -> None:
    check_template(text, VARIABLES)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{{ src }}", "H125"),
        ("{{ dst.adress }}", "H125"),
        ("{{ dst['size'] }}", "H125"),
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
