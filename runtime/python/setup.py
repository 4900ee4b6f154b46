"""What pyproject.toml can't say: the version and the torch that the library was built with, and the wheel's tag."""

import runpy
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

BUILD = runpy.run_path(str(Path(__file__).parent / "remat" / "_build.py"))
TORCH = ".".join(BUILD["TORCH"].split(".")[:2])


class WithLibrary(Distribution):
    """The library was built already; the wheel is for one platform all the same."""

    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """The library knows nothing of Python's ABI."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    version=f"{BUILD['VERSION']}+torch{TORCH}",
    install_requires=[f"torch=={TORCH}.*"],
    distclass=WithLibrary,
    cmdclass={"bdist_wheel": AnyPython},
)
