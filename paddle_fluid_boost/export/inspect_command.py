"""The commands ``inspect`` and ``compare``: arguments in, text or JSON out, exit status back."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import Any

from ..errors import BoostError, ExportError
from .messages import say

_INSPECT = """\
Shows what a model takes, gives and consists of.

examples:
  python -m paddle_fluid_boost inspect exported/model.onnx
  python -m paddle_fluid_boost inspect inference/model
  python -m paddle_fluid_boost inspect paddle.vision.models:resnet18 --shape x=batch,3,224,224
  python -m paddle_fluid_boost inspect exported/model.pfb --extract unpacked
"""
_COMPARE = """\
Runs two models on the same inputs: how far apart, and how fast.  The first is right.

examples:
  python -m paddle_fluid_boost compare exported/model.json exported/model.onnx
  python -m paddle_fluid_boost compare net.py:Detector exported/model.pfb --weights best.pdparams
  python -m paddle_fluid_boost compare net.py:make model.onnx --layers   # where do they part?

exit status: 0 they agree; 1 they differ, or one fails; 2 the arguments are wrong.
"""
_MODEL = "module:attr, file.py:attr, a saved Paddle model, or a .onnx, .ort or .pfb file"


def add_parsers(commands: Any) -> None:
    """Adds ``inspect`` and ``compare`` to the subparsers of the command line."""
    inspect = commands.add_parser(
        "inspect",
        help="show what a model or an exported file holds",
        description=_INSPECT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.add_argument("model", metavar="MODEL", help=_MODEL)
    _add_shapes(inspect)
    inspect.add_argument("--extract", metavar="FOLDER", help="unpack the models in a bundle")
    compare = commands.add_parser(
        "compare",
        help="compare two models or exported files on the same inputs",
        description=_COMPARE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    compare.add_argument("a", metavar="A", help=_MODEL)
    compare.add_argument("b", metavar="B", help="another, which should give the same")
    _add_shapes(compare)
    compare.add_argument("--samples", metavar="FOLDER", help=".npz files to compare on, too")
    compare.add_argument("--rtol", type=float, help="allowed error, relative to an output's range")
    compare.add_argument(
        "--layers", action="store_true", help="compare intermediate results, to find the fault"
    )


def _add_shapes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME[:DTYPE]=SIZE,...",
        help="one input, as for export; for a model from Python",
    )
    parser.add_argument("--range", action="append", default=[], metavar="NAME=FIRST..LAST[:STEP]")
    parser.add_argument("--args", metavar="JSON", help="keyword arguments for making the Layer")
    parser.add_argument("--weights", metavar="FILE", help="a .pdparams file for the Layer")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(parsed: argparse.Namespace) -> int:
    """Does what ``parsed`` asks for; returns the exit status."""
    try:
        return (_inspect if parsed.command == "inspect" else _compare)(parsed)
    except BoostError as error:
        usage = not isinstance(error, ExportError) or error.usage
        return _failed(parsed, str(error), 2 if usage else 1)
    except KeyboardInterrupt:
        return _failed(parsed, say("interrupted"), 128 + signal.SIGINT)


def _failed(parsed: argparse.Namespace, message: str, status: int) -> int:
    if parsed.json:
        print(json.dumps({"ok": False, "error": message}, ensure_ascii=False))
    else:
        print(f"{say('error')}: {message}", file=sys.stderr)
    return status


def _inspect(parsed: argparse.Namespace) -> int:
    from .bundle_file import unpack
    from .inspection import inspect_model

    found = inspect_model(parsed.model, **_shared(parsed))
    print(_json(found.to_dict()) if parsed.json else found)
    if parsed.extract:
        if found.kind != "bundle":
            raise ExportError("--extract: only a bundle can be unpacked", usage=True)
        names = unpack(parsed.model, parsed.extract)
        said = say("extracted", folder=os.path.abspath(parsed.extract), files=", ".join(names))
        print(said, file=sys.stderr)
    return 0


def _compare(parsed: argparse.Namespace) -> int:
    from .comparison import compare

    found = compare(
        parsed.a,
        parsed.b,
        samples=parsed.samples,
        rtol=parsed.rtol,
        layers=parsed.layers,
        **_shared(parsed),
    )
    print(_json(found.to_dict()) if parsed.json else found)
    return 0 if found.ok else 1


def _shared(parsed: argparse.Namespace) -> dict[str, Any]:
    from .command import json_object

    return {
        "shapes": parsed.shape,
        "ranges": parsed.range,
        "arguments": json_object(parsed.args),
        "weights": parsed.weights,
    }


def _json(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=1, ensure_ascii=False)
