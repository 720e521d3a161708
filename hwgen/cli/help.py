"""`help`: what an error or a primitive of schedules means, from the pages that come with hwgen; and
how commands are called."""

from __future__ import annotations

import inspect
import re
from textwrap import fill
from typing import Annotated

import typer
from typer.core import TyperGroup

from hwgen.cli.complete import topics
from hwgen.cli.guard import guarded
from hwgen.spec.find import nearest, shipped

FOLDER = "docs/errors"
WIDTH = 100
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_ROW = re.compile(r"^\| \[(H\d{3})\]\S+ \| (.*) \|$", re.MULTILINE)


def on(
    context: typer.Context,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="An error's code (H422), the beginning of codes (H4), a primitive of schedules "
            "(tensorize), or a command. Left out: all commands.",
            show_default=False,
            autocompletion=topics,
        ),
    ] = "",
) -> None:
    """Explain an error's code, a primitive of schedules or a command.

    A code is explained with an example and the repair, a primitive with its arguments, its
    condition and an example.
    """
    from hwgen.polyhedral.schedule.script import PRIMITIVES

    if topic in PRIMITIVES:
        with guarded():
            typer.echo(primitive(topic))
        return
    if not re.fullmatch(r"[Hh]|[Hh]?\d{1,3}", topic):
        typer.echo(_usage(context, topic))
        return
    wanted = f"H{topic.upper().removeprefix('H')}"
    with guarded():
        titles = dict(_ROW.findall(_read("index")))
        found = {code: title for code, title in titles.items() if code.startswith(wanted)}
        if wanted in found:
            typer.echo(section(wanted))
        else:
            for code, title in found.items():
                typer.echo(f"{code}  {title}")
    if not found:
        family = wanted[:2]
        listed = family if any(code.startswith(family) for code in titles) else "H4"
        said = f"no error has the code {wanted}; hwgen help {listed} lists those of {listed}xx"
        raise typer.BadParameter(said, param_hint="'TOPIC'")


def _usage(context: typer.Context, name: str) -> str:
    """What `--help` says, of hwgen or of one of its commands."""
    above = context.parent
    assert above is not None, "help is a command of hwgen"
    if not name:
        return above.get_help()
    commands = above.command
    assert isinstance(commands, TyperGroup)
    command = commands.get_command(above, name)
    if command is None:
        from hwgen.polyhedral.schedule.script import PRIMITIVES

        close = nearest(name, [*commands.list_commands(above), *PRIMITIVES])
        said = f"{name} is neither a code nor a primitive nor a command" + (
            f"; did you mean {close}?" if close else ""
        )
        raise typer.BadParameter(said, param_hint="'TOPIC'")
    return command.get_help(typer.Context(command, info_name=name, parent=above))


def primitive(name: str) -> str:
    """How a primitive is called, and what the page on schedules says about it, as plain text."""
    from hwgen.polyhedral.schedule.schedule import Schedule

    method = getattr(Schedule, name)
    signature = inspect.signature(method, eval_str=True)
    arguments = [p for p in signature.parameters.values() if p.name != "self"]
    called = str(signature.replace(parameters=arguments)).replace("collections.abc.", "")
    told = inspect.cleandoc(method.__doc__ or "").partition("\n\nRaises:")[0]
    paragraphs = (fill(" ".join(p.split()), WIDTH) for p in told.split("\n\n"))
    page = (shipped("docs") / "schedule.md").read_text(encoding="utf-8")
    text = re.split(r"^#{2,3} ", page.split(f"\n### {name}\n", 1)[1], maxsplit=1, flags=re.M)[0]
    return "\n".join([f"s.{name}{called}", "", "\n\n".join(paragraphs), "", *_plain(text)])


def section(code: str) -> str:
    """What the page of a code's family says about it, as plain text."""
    page = _read(code[:2])
    text = page.split(f"\n## {code}\n", 1)[1].split("\n## ", 1)[0]
    return "\n".join([code, "", *_plain(text)])


def _plain(text: str) -> list[str]:
    """A page's lines without marks; code is indented."""
    lines: list[str] = []
    literal = False
    for line in text.strip().splitlines():
        if line.startswith("```"):
            literal = not literal
        elif literal:
            lines.append(f"    {line}".rstrip())
        else:
            lines.append(_LINK.sub(r"\1", line).replace("**", ""))
    return lines


def _read(name: str) -> str:
    return (shipped(FOLDER) / f"{name}.md").read_text(encoding="utf-8")
