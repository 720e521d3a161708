"""`help`: what an error means, from the pages that come with hwgen; and how commands are called."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from typer.core import TyperGroup

from hwgen.cli.complete import topics
from hwgen.cli.guard import guarded
from hwgen.spec.find import nearest, shipped

FOLDER = "docs/errors"
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_ROW = re.compile(r"^\| \[(H\d{3})\]\S+ \| (.*) \|$", re.MULTILINE)


def on(
    context: typer.Context,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="An error's code (H422), the beginning of codes (H4), or a command. Left out: "
            "all commands.",
            show_default=False,
            autocompletion=topics,
        ),
    ] = "",
) -> None:
    """Explain an error's code or a command.

    A code is explained with an example and the repair.
    """
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
        close = nearest(name, commands.list_commands(above))
        said = f"{name} is neither a code nor a command" + (
            f"; did you mean {close}?" if close else ""
        )
        raise typer.BadParameter(said, param_hint="'TOPIC'")
    return command.get_help(typer.Context(command, info_name=name, parent=above))


def section(code: str) -> str:
    """What the page of a code's family says about it, as plain text."""
    page = _read(code[:2])
    text = page.split(f"\n## {code}\n", 1)[1].split("\n## ", 1)[0].strip()
    lines = [code, ""]
    literal = False
    for line in text.splitlines():
        if line.startswith("```"):
            literal = not literal
        elif literal:
            lines.append(f"    {line}".rstrip())
        else:
            lines.append(_LINK.sub(r"\1", line).replace("**", ""))
    return "\n".join(lines)


def _read(name: str) -> str:
    return (shipped(FOLDER) / f"{name}.md").read_text(encoding="utf-8")
