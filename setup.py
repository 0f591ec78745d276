"""What pyproject.toml cannot say: a line that Python runs as it starts, where anyshape is
installed. With ANYSHAPE_INSTALL set, `torch.compile` uses our own capture in programs that never
import anyshape. An editable installation has no such line: import anyshape there."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

AT_START = 'import os; os.environ.get("ANYSHAPE_INSTALL") and __import__("anyshape")\n'


class WithStart(build_py):
    """Puts `anyshape.pth` beside the package."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            (Path(self.build_lib) / "anyshape.pth").write_text(AT_START, encoding="utf-8")


setup(cmdclass={"build_py": WithStart})
