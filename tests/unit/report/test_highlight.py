"""Source as HTML: tokens by kind, every character kept, nothing of the text as markup."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from hwgen.report.highlight import highlighted, source_lines, with_code


def marked(line: str) -> str:
    (found,) = source_lines(line)
    return str(found)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "static f(int8_t x);",
            '<i class="keyword">static</i> f(<i class="type">int8_t</i> x);',
        ),
        (
            "a1 = 0x1Fu + 2.5e-3f;",
            'a1 = <i class="number">0x1Fu</i> + <i class="number">2.5e-3f</i>;',
        ),
        ("format(form, ifs)", "format(form, ifs)"),
        ('g("if /* 3 */");', 'g(<i class="text">&#34;if /* 3 */&#34;</i>);'),
        ("  #pragma omp simd", '<i class="directive">  #pragma omp simd</i>'),
        ("x; // for 3", 'x; <i class="comment">// for 3</i>'),
    ],
)
def test_tokens_have_the_class_of_their_kind(line: str, expected: str) -> None:
    assert marked(line) == expected


def test_a_comment_over_several_lines_is_marked_on_each() -> None:
    assert [str(line) for line in source_lines("a; /* b\n\nint c */ int d;\n")] == [
        'a; <i class="comment">/* b</i>',
        "",
        '<i class="comment">int c */</i> <i class="type">int</i> d;',
    ]


@pytest.mark.parametrize("text", ["", "x", "/* open", "'", '"a\nb"', "a\n\n\nb", "é = 0..<4;\r"])
def test_every_character_is_kept(text: str) -> None:
    lines = [Markup(line).striptags() for line in source_lines(text)]
    assert [" ".join(x.split()) for x in text.split("\n")] == (lines or [""])


def test_nothing_of_a_text_becomes_markup() -> None:
    hostile = "</pre><script>alert(1)</script> `<b>`"
    assert "<script" not in marked(hostile)
    assert "<script" not in highlighted(hostile)
    assert with_code(hostile).endswith("<code>&lt;b&gt;</code>")


def test_backticks_become_code() -> None:
    assert with_code("it computes `a[i] += x`, or `0`") == (
        "it computes <code>a[i] += x</code>, or <code>0</code>"
    )
    assert with_code("one ` alone") == "one ` alone"
