"""The command reference: every option of every command, as its parser declares it."""

import argparse
from collections.abc import Iterator, Mapping

from pcl.presentation.text_tables import markdown_table

_GROUPS = {"options": "", "optional arguments": "", "positional arguments": ""}  # argparse's own: they need no heading


def command_reference(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return a section for each command, by the name of its file."""
    return "\n\n".join(part for name, parser in parsers.items() for part in _section(name, parser))


def _section(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## {name}"
    yield (parser.description or "").strip()
    subcommands = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    yield from _tables(parser)
    for action in subcommands:
        meanings = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for word, subparser in action.choices.items():
            yield f"### {name} {word}"
            yield f"{meanings[word][:1].upper()}{meanings[word][1:]}."
            yield from _tables(subparser)


def _tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    for group in parser._action_groups:
        actions = [
            a for a in group._group_actions if not isinstance(a, argparse._HelpAction | argparse._SubParsersAction)
        ]
        if actions:
            title = group.title or ""
            head = [_GROUPS.get(title, title) or "option", "meaning"]
            rows = [[_spelling(action, formatter), (action.help or "").replace("%%", "%")] for action in actions]
            yield "\n".join(markdown_table([head, *rows]))


def _spelling(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    """Return how an option is written, with a pipe as an entity, which Markdown's tables leave alone."""
    is_option = bool(action.option_strings)
    default = (
        formatter._get_default_metavar_for_optional if is_option else formatter._get_default_metavar_for_positional
    )
    value = "" if action.nargs == 0 else formatter._format_args(action, default(action))
    words = " ".join(filter(None, [", ".join(action.option_strings), value]))
    return f"<code>{words.replace('|', '&#124;')}</code>" if "|" in words else f"`{words}`"
