"""Builds the extensions: the data path in C, and the compiled form of the transfer layer.

Without a C compiler the installation succeeds and has neither: numpy and the interpreter do the
work (docs/datapath.md). Everything else is in pyproject.toml.
"""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from Cython.Build import cythonize
from Cython.Compiler import Options
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from dlcpd.build import NOTE as BUILD_NOTE  # noqa: E402  # of this source
from dlcpd.build import built, linked, parsed, project_urls  # noqa: E402  # likewise
from dlcpd.transfer_form import BUILT, SOURCES, digest  # noqa: E402  # likewise

PACKAGE: Final = "dlcpd"
NOTE: Final = Path(PACKAGE, BUILT, SOURCES)
# The modules that have a compiled form; relative to ROOT, the working directory of every build.
MODULES: Final = sorted(path.with_suffix(".py") for path in Path(PACKAGE, "core").rglob("*.pxd"))
Options.emit_code_comments = False  # the generated C is not read
DIRECTIVES: Final = {
    "language_level": 3,
    "annotation_typing": False,  # types of attributes and arguments are in the .pxd files
    "auto_pickle": False,
    "binding": False,
}
# Generated C is long: -O2 without debug information. Without contraction, sums are those of Python.
FLAGS: Final = ["-O2", "-g0", "-ffp-contract=off"]


def data_path() -> Extension:
    """Called by ctypes."""
    folder = Path(PACKAGE, "io", "datapath")
    return Extension(
        "dlcpd.io.datapath._datapath",
        [str(folder / f"{name}.c") for name in ("checksum", "receive", "send", "sum", "table")],
        depends=[str(folder / "datapath.h")],
        extra_compile_args=["-std=c99", "-O3", "-fvisibility=default"],
        optional=True,
    )


def module(source: Path) -> str:
    """Its name, dotted."""
    return ".".join(source.with_suffix("").parts)


def is_current(folder: Path, source: Path) -> bool:
    """Whether `folder` has the extension of a module, and it is no older than its source."""
    path = source.relative_to(PACKAGE).with_suffix(EXTENSION_SUFFIXES[0])
    extension = folder / PACKAGE / BUILT / path
    return extension.exists() and extension.stat().st_mtime >= source.stat().st_mtime


def transfer_layer() -> list[Extension]:
    """One extension per module, in the folder of compiled modules."""
    extensions = [
        Extension(module(source), [str(source)], extra_compile_args=FLAGS) for source in MODULES
    ]
    built = cythonize(
        extensions, build_dir="build/cython", compiler_directives=DIRECTIVES, quiet=True
    )
    for extension in built:
        extension.optional = True  # cythonize drops it
        extension.name = f"{PACKAGE}.{BUILT}.{extension.name.removeprefix(PACKAGE + '.')}"
    return list(built)


class Build(build_ext):
    """Also notes which sources the modules were built from, if all of them could be built."""

    def finalize_options(self) -> None:
        """Compile with all CPUs."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        """Build into the folder of the build, and for an editable installation into the package."""
        folders = [Path(self.build_lib), *([ROOT] if self.inplace else [])]
        for folder in folders:
            (folder / NOTE).unlink(missing_ok=True)
            for source in MODULES:  # setuptools makes the folders of packages only
                folder.joinpath(PACKAGE, BUILT, source.relative_to(PACKAGE)).parent.mkdir(
                    parents=True, exist_ok=True
                )
        super().run()
        if all(is_current(Path(self.build_lib), source) for source in MODULES):
            lines = [f"{module(source)} {digest(source)}\n" for source in MODULES]
            for folder in folders:
                (folder / NOTE).write_text("".join(lines), "ascii")

    def get_outputs(self) -> list[str]:
        """All files that a wheel takes from this command."""
        note = Path(self.build_lib, NOTE)
        return [*super().get_outputs(), *([str(note)] if note.exists() else [])]


BUILD: Final = built(ROOT, os.environ)


def note_in(folder: Path) -> Path:
    """The file with version and commit of the package that is made in `folder`."""
    return folder / PACKAGE / BUILD_NOTE


class Modules(build_py):
    """Also notes version and commit, except for an editable installation, whose commit changes."""

    def run(self) -> None:
        """Build."""
        super().run()
        if not self.editable_mode:
            note_in(Path(self.build_lib)).write_text(f"{BUILD}\n", "ascii")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:  # of setuptools
        """All files that a wheel takes from this command."""
        return [*super().get_outputs(include_bytecode), str(note_in(Path(self.build_lib)))]


class Source(sdist):
    """Also notes version and commit, which a build from it cannot ask git for."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files."""
        super().make_release_tree(base_dir, files)
        note_in(Path(base_dir)).write_text(f"{BUILD}\n", "ascii")


setup(
    version=parsed(BUILD)[0],
    long_description=linked((ROOT / "README.md").read_text("utf-8"), BUILD, os.environ),
    long_description_content_type="text/markdown",
    project_urls=project_urls(os.environ),
    ext_modules=[data_path(), *transfer_layer()],
    cmdclass={"build_ext": Build, "build_py": Modules, "sdist": Source},
)
