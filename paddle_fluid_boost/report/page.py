"""A report as one page of HTML that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ReportError

if TYPE_CHECKING:
    from .explain import Report

_TEMPLATE = Path(__file__).with_name("page.html")


def render(report: Report, time: Callable[[float], str]) -> str:
    """The page; ``time`` writes seconds for people.

    Raises:
        ReportError: jinja2 is missing.
    """
    try:
        import jinja2
    except ImportError as error:
        raise ReportError(
            "a page needs jinja2: pip install 'paddle-fluid-boost[report]' "
            "(print(report) and report.to_dict() need nothing)"
        ) from error
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(report=report, time=time)
