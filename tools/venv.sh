# Sourced by the scripts of this folder: finds a Python, makes a virtual environment, installs.
#
# prepare_venv NAME EXTRAS [PACKAGE ...]
#     makes or reuses $ROOT/NAME with "-e .[EXTRAS]" in it, and each PACKAGE without what it depends
#     on; sets $VENV_PYTHON.
# step TEXT
#     prints a numbered, timed step.
# quietly COMMAND ...
#     runs a command without what Paddle prints at every import.
#
# PYTHON chooses the interpreter; pip's own settings (files and PIP_* variables) are honoured.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
STEP=0
# What the tests need; tools/test and tools/test-arm share one environment.
TEST_EXTRAS=cpu,onnxruntime,openvino,export,test

step() {
    STEP=$((STEP + 1))
    printf '\n==> [%d] %s  (%ds since the start)\n' "$STEP" "$1" "$SECONDS"
}

quietly() {
    "$@" 2> >(sed -u -e '/^WARNING: OMP_NUM_THREADS set to /d' \
        -e '/^PLEASE USE OMP_NUM_THREADS WISELY/d' >&2)
}

die() {
    printf '\nerror: %s\n' "$1" >&2
    exit 2
}

# What keeps interpreter $1 from being used, as text; nothing when it can be used.
python_fault() {
    "$1" - 2>/dev/null <<'PY' || echo "it does not run"
import sys

version = "%d.%d" % sys.version_info[:2]
if not (3, 9) <= sys.version_info[:2] <= (3, 13):
    print("it is Python %s, and PaddlePaddle 3.x needs 3.9 to 3.13" % version)
else:
    try:
        import ensurepip
        import venv
    except ImportError:
        print("its venv module is not installed: apt-get install python%s-venv" % version)
PY
}

# Sets BASE_PYTHON to the interpreter to build the environment from.
find_python() {
    local candidate fault faults=""
    if [ -n "${PYTHON:-}" ]; then
        fault=$(python_fault "$PYTHON")
        [ -z "$fault" ] || die "PYTHON=$PYTHON cannot be used: $fault"
        BASE_PYTHON=$PYTHON
        return
    fi
    for candidate in python3.11 python3.12 python3.10 python3.13 python3.9 python3; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        fault=$(python_fault "$candidate")
        if [ -z "$fault" ]; then
            BASE_PYTHON=$candidate
            return
        fi
        faults="$faults
  $candidate: $fault"
    done
    die "no usable Python 3.9-3.13 was found.${faults:-
  No python3 is on PATH: apt-get install python3 python3-venv}
Install one, or name it: PYTHON=/path/to/python3.11 $0"
}

# A hash of all that decides what the environment holds: a change of it means a new installation.
install_stamp() {
    (
        cd "$ROOT"
        printf '%s\n' "$1" "$2"
        cat tools/venv.sh setup.cfg pyproject.toml
        [ ! -f setup.py ] || cat setup.py
        [ ! -d csrc ] || find csrc -type f -print0 | LC_ALL=C sort -z | xargs -0 -r cat
    ) | sha256sum | cut -d' ' -f1
}

# What keeps Paddle from being imported by $VENV_PYTHON is explained, in words that help.
check_paddle() {
    local log
    if ! log=$("$VENV_PYTHON" -W ignore -c 'import paddle; print("PaddlePaddle", paddle.__version__)' 2>&1); then
        printf '%s\n' "$log" >&2
        case $log in
            *libgomp.so.1*) die "PaddlePaddle needs the OpenMP run-time: apt-get install libgomp1" ;;
            *) die "PaddlePaddle was installed but cannot be imported (see above)" ;;
        esac
    fi
    printf '%s\n' "$log" | tail -n 1
}

# pip, with one line for each package instead of its full log.
pip_install() {
    "$VENV_PYTHON" -m pip install --disable-pip-version-check --prefer-binary --progress-bar off "$@" |
        sed -un -e 's/^ *\(Collecting [^ ]*\).*/    \1/p' \
            -e 's/^ *\(Downloading .*\)/    \1/p' -e 's/^\(Installing c\|Building\)/    \1/p'
}

prepare_venv() {
    local name=$1 extras=$2 venv=$ROOT/$1 base stamp
    shift 2
    find_python
    base=$("$BASE_PYTHON" -c 'import sys; print(sys.executable, sys.version.split()[0])')
    stamp=$(install_stamp "$extras $*" "$base")
    VENV_PYTHON=$venv/bin/python
    if [ "$(cat "$venv/.pfb-stamp" 2>/dev/null)" = "$stamp" ] && [ -x "$VENV_PYTHON" ]; then
        step "Virtual environment $name is up to date"
        return
    fi
    step "Virtual environment $name from $base"
    if [ "$(cat "$venv/.pfb-base" 2>/dev/null)" != "$base" ]; then
        rm -rf "$venv"
        "$BASE_PYTHON" -m venv "$venv"
        printf '%s\n' "$base" >"$venv/.pfb-base"
    fi

    step "Install paddle_fluid_boost[$extras] (the first time about 300 MB are downloaded)"
    command -v "${CXX:-c++}" >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 ||
        echo "note: no C++ compiler, so the native engine is left out (apt-get install g++ brings it)"
    pip_install --editable "$ROOT[$extras]"
    [ $# = 0 ] || pip_install --no-deps "$@"
    check_paddle
    printf '%s\n' "$stamp" >"$venv/.pfb-stamp"
}

# The environment that every run here shares.  Paddle alone would use one OpenMP thread; engines are
# compared fairly only when all are given the same number before Python starts.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc 2>/dev/null || echo 1)}
# Paddle warns at import when ccache is missing, which matters to nobody who builds no Paddle ops.
export PYTHONWARNINGS="ignore:No ccache found:UserWarning${PYTHONWARNINGS:+,$PYTHONWARNINGS}"
# Paddle's C++ log below errors (0 info, 1 warning, 2 error).
export GLOG_minloglevel=${GLOG_minloglevel:-2}
