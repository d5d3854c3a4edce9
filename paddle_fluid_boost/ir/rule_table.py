"""Tables of rules by the name of an op, each entered where the rule stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Rule = TypeVar("Rule", bound=Callable[..., Any])


def entering(table: dict[str, Rule]) -> Callable[..., Callable[[Rule], Rule]]:
    """The decorator that enters a rule in ``table`` for the ops it is given.

    >>> RULES: dict[str, Callable[[Node], None]] = {}
    >>> lowers = entering(RULES)
    >>> @lowers("relu", "relu6")
    ... def relu(node): ...

    The decorator raises ValueError where an op has a rule already.
    """

    def rule_for(*ops: str) -> Callable[[Rule], Rule]:
        def enter(rule: Rule) -> Rule:
            for op in ops:
                if op in table:
                    raise ValueError(f"op '{op}' has two rules")
                table[op] = rule
            return rule

        return enter

    return rule_for
