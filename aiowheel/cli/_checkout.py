"""Commands whose code is in a checkout, and not in the wheel that users install. Rank 5."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NoReturn

from aiowheel.errors import BadInputError

_ROOT = Path(__file__).parents[2]  # the folder that has the package


class CheckoutCommand:
    """A command whose module is in a folder beside the package.

    Args:
        name: The name of the command, and of the function or typer application in the module.
        module: Dotted name of the module from the root of the checkout.
        task: The purpose of the command, which follows the word "to" in the error.

    Attributes:
        name: The name of the command.
        help: The help of the command where there is no checkout.
    """

    def __init__(self, name: str, module: str, task: str) -> None:
        self.name = name
        self._module = module
        self._refusal = (
            f"{name}, a command to {task}, is not in an installed package; run in a checkout of "
            "the sources: pip install --editable '.[all]'"
        )
        self.help = f"In a checkout: {task}.\n\nThe installed package does not contain it."

    @property
    def is_here(self) -> bool:
        """Whether the package is in a checkout that has the module.

        An installed package has no pyproject.toml beside it, and a folder of the same name there
        belongs to another project.
        """
        source = _ROOT.joinpath(*self._module.split(".")).with_suffix(".py")
        return source.is_file() and (_ROOT / "pyproject.toml").is_file()

    def load(self) -> Any:
        """Import the module, and return its function or typer application."""
        _import_package(self._module.rpartition(".")[0])
        return getattr(import_module(self._module), self.name)

    def refuse(self) -> NoReturn:
        """Raise the error of the command where there is no checkout."""
        raise BadInputError(self._refusal)


def _import_package(name: str) -> None:
    """Import a package of the checkout, even if `sys.path` finds another package of that name."""
    file = _ROOT.joinpath(*name.split("."), "__init__.py")
    if getattr(sys.modules.get(name), "__file__", None) != str(file):
        spec = spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        package = module_from_spec(spec)
        sys.modules[name] = package
        spec.loader.exec_module(package)


CHECKOUT_COMMANDS = {
    command.name: command
    for command in (
        CheckoutCommand("bench", "benchmarks.commands", "measure costs beside asyncio and uvloop"),
        CheckoutCommand("demo", "examples.demo.command", "show the library at work in a minute"),
    )
}
