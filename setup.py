"""Builds the two native libraries; everything else about the package is in setup.cfg.

``_native``, the engine, needs pybind11 and oneDNN's headers; ``_pool``, the block pool, only a
C++17 compiler on Linux.  Both are optional: without them the package installs as pure Python, and
what they would do says what is missing.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

#: The distributions that carry oneDNN's headers and the library to link against.
ONEDNN_HEADERS = "onednn-devel-cpu-gomp"
ONEDNN_LIBRARY = "onednn-cpu-gomp"


def _folder_of(distribution: str, name: str) -> str:
    """The folder of the file ``name`` that an installed distribution brought."""
    for file in importlib.metadata.files(distribution) or ():
        if file.name == name:
            return str(Path(str(file.locate())).resolve().parent)
    raise FileNotFoundError(f"{distribution} has no file {name}")


def native_extension() -> Extension | None:
    """The extension, or None with a warning when what it needs is missing."""
    try:
        import pybind11

        headers = _folder_of(ONEDNN_HEADERS, "dnnl.hpp")
        library = Path(_folder_of(ONEDNN_LIBRARY, "libdnnl.so")) / "libdnnl.so"
    except (ImportError, FileNotFoundError) as error:
        # PackageNotFoundError is an ImportError too.
        print(f"warning: building without the native engine: {error}", file=sys.stderr)
        return None
    return Extension(
        "paddle_fluid_boost._native",
        sources=sorted(str(path) for path in Path("csrc/native").glob("*.cc")),
        depends=sorted(str(path) for path in Path("csrc/native").glob("*.h")),
        include_dirs=[headers, pybind11.get_include()],
        # By full path and without an rpath: at run time the library of the same soname that
        # Paddle has loaded is used.
        extra_objects=[str(library)],
        extra_compile_args=[
            *("-std=c++17", "-O3", "-fvisibility=hidden", "-g0"),
            *("-Wall", "-Wextra", "-Werror", "-Wno-ignored-attributes", "-Wno-psabi"),
        ],
        language="c++",
        optional=True,
    )


def pool_library() -> Extension | None:
    """The block pool.  Not a Python module: a library with a C interface, loaded by ctypes."""
    if not sys.platform.startswith("linux"):
        print("warning: building without the block pool: it needs Linux", file=sys.stderr)
        return None
    return Extension(
        "paddle_fluid_boost._pool",
        sources=sorted(str(path) for path in Path("csrc/memory").glob("*.cc")),
        depends=sorted(str(path) for path in Path("csrc/memory").glob("*.h")),
        extra_compile_args=[
            *("-std=c++17", "-O3", "-fvisibility=hidden", "-g0", "-pthread"),
            *("-Wall", "-Wextra", "-Werror"),
        ],
        extra_link_args=["-pthread"],
        language="c++",
        # It uses nothing of Python, so that one file serves all versions.
        py_limited_api=True,
        optional=True,
    )


class ParallelBuild(build_ext):
    """Compiles the files of the extension side by side."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self._make_compiler_parallel()

    @staticmethod
    def _make_compiler_parallel() -> None:
        """Compiles the files of one extension side by side; setuptools does it one by one."""
        try:
            from pybind11.setup_helpers import ParallelCompile
        except ImportError:
            return  # one by one, then
        ParallelCompile("PFB_BUILD_JOBS", default=0).install()


extensions = [made for made in (native_extension(), pool_library()) if made is not None]
setup(
    ext_modules=extensions,
    cmdclass={"build_ext": ParallelBuild} if extensions else {},
)
