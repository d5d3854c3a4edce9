"""The command line of export: arguments in, table or JSON out, exit status back."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any

from ..errors import BoostError, ExportError
from .messages import say

_HELP = """\
Exports a model to files that were loaded in their own runtimes and give the same results.

examples:
  # a network of paddle.vision, any batch, two formats
  python -m paddle_fluid_boost export paddle.vision.models:mobilenet_v3_small \\
      --shape x=batch,3,224,224 --to paddle,onnx --out exported

  # your own class, with weights; height and width vary in steps of 32
  python -m paddle_fluid_boost export net.py:Detector --args '{"classes": 20}' \\
      --weights best.pdparams --shape image=batch,3,h,w --range h=320..640:32 \\
      --range w=320..640:32 --to onnx --out detector

  # a saved Paddle Inference model (.json or .pdmodel beside .pdiparams)
  python -m paddle_fluid_boost export inference/model --to onnx --out converted

  # integers, and inputs of your own to compare with (samples/*.npz, arrays by input name)
  python -m paddle_fluid_boost export tagger.py:make --shape ids:int64=batch,seq \\
      --range seq=8..128 --samples samples --to bundle --out tagger

exit status: 0 all made and verified; 1 something failed (nothing written, but for --keep-going);
2 the arguments are wrong; 130 interrupted.
"""


def add_parser(commands: Any) -> None:
    """Adds ``export`` to the subparsers of the command line."""
    parser = commands.add_parser(
        "export",
        help="export a model to verified files (paddle, onnx, mobile, bundle)",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python -m paddle_fluid_boost export MODEL --out FOLDER [--shape ...] [--to ...]",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="module:attr or file.py:attr, a Layer or what makes one; or a saved model",
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="made when all is well")
    parser.add_argument(
        "--to",
        default="paddle",
        metavar="TARGETS",
        help="comma-separated, of paddle, onnx, bundle, mobile, mnn, ncnn (default: %(default)s); "
        "'doctor' says which are available here",
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME[:DTYPE]=SIZE,...",
        help="one input; a name in place of a size leaves it open; once per input",
    )
    parser.add_argument(
        "--range",
        action="append",
        default=[],
        metavar="NAME=FIRST..LAST[:STEP]",
        help="sizes of a name, or NAME=SIZE,SIZE; the first is used where it must be fixed",
    )
    parser.add_argument("--args", metavar="JSON", help="keyword arguments for making the Layer")
    parser.add_argument("--weights", metavar="FILE", help="a .pdparams file for the Layer")
    parser.add_argument("--samples", metavar="FOLDER", help=".npz files to compare on, too")
    parser.add_argument("--rtol", type=float, help="allowed error, relative to an output's range")
    parser.add_argument("--opset", type=int, default=17, help="of ONNX (default: %(default)s)")
    parser.add_argument("--strict", action="store_true", help="fail if a size cannot stay open")
    parser.add_argument("--keep-going", action="store_true", help="keep what worked when some fail")
    parser.add_argument("--force", action="store_true", help="replace an earlier export")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def run(parsed: argparse.Namespace) -> int:
    """Does what ``parsed`` asks for; returns the exit status."""
    from .api import export

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        report = export(
            parsed.model,
            parsed.out,
            to=parsed.to,
            shapes=parsed.shape,
            ranges=parsed.range,
            arguments=json_object(parsed.args),
            weights=parsed.weights,
            samples=parsed.samples,
            rtol=parsed.rtol,
            opset=parsed.opset,
            strict=parsed.strict,
            keep_going=parsed.keep_going,
            force=parsed.force,
            progress=not parsed.quiet,
        )
    except BoostError as error:
        usage = not isinstance(error, ExportError) or error.usage
        return _failed(parsed, str(error), 2 if usage else 1)
    except KeyboardInterrupt:
        return _failed(parsed, say("interrupted"), 128 + signal.SIGINT)
    if parsed.json:
        print(json.dumps(report.to_dict(), indent=1, ensure_ascii=False))
    else:
        print(report)
        print(say("written", folder=report.folder, seconds=report.seconds))
    return 0 if report.ok else 1


def json_object(text: str | None) -> dict[str, Any] | None:
    """What ``--args`` says, None without it; ExportError when it is no object."""
    try:
        found = json.loads(text) if text else None
        if found is not None and not isinstance(found, dict):
            raise ValueError("needs an object")
    except ValueError as error:
        raise ExportError(f"--args: {text!r} is not a JSON object: {error}", usage=True) from error
    return found


def _failed(parsed: argparse.Namespace, message: str, status: int) -> int:
    if parsed.json:
        print(json.dumps({"ok": False, "error": message}, ensure_ascii=False))
    else:
        print(f"{say('error')}: {message}", file=sys.stderr)
        print(say("nothing"), file=sys.stderr)
    return status


def _leave(number: int, frame: Any) -> None:
    """A polite kill unwinds, so that nothing is left behind."""
    sys.exit(128 + number)
