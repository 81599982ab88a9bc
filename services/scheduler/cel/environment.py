"""CEL as Kubernetes has it for devices: compiled expressions, and their truth for a device."""

from collections import OrderedDict
from typing import Any, Final

from cel_expr_python import cel

from services.scheduler.cel.frames import ERROR_MAX, Answer, SeenDevice, qualified
from services.scheduler.cel.syntax_trees import BadExpression, adapted
from services.scheduler.cel.values import POOL, declarations, quantity, semver

_EXTENSIONS: Final = ("bindings", "optional", "strings", "sets", "lists", "two-var-comprehensions")
_COMPILED_MAX: Final = 64
_NO_KEY: Final = "Key not found in map : "


class Environment:
    """The language, and the expressions that were compiled last."""

    def __init__(self) -> None:
        listed = "".join(f"- name: {name}\n" for name in _EXTENSIONS)
        self._env: Final = cel.NewEnv(
            POOL,
            config=cel.NewEnvConfigFromYaml(f"extensions:\n{listed}"),
            variables={"device": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)},
            functions=list(declarations()),
        )
        self._compiled: OrderedDict[str, Any] = OrderedDict()
        """Expression → program, or why there is none."""

    def answer(self, expression: str, device: SeenDevice) -> Answer:
        """Return whether a device meets an expression, or why that is unknown."""
        program = self._compiled.get(expression)
        if program is None:
            program = self._compiled[expression] = self._compile(expression)
            if len(self._compiled) > _COMPILED_MAX:
                self._compiled.popitem(last=False)
        if isinstance(program, str):
            return program
        try:
            variables = {"device": _shown(device)}
        except ValueError as error:
            return str(error)[:ERROR_MAX]
        try:
            found = program.eval(data=variables)
        except RuntimeError as error:  # the library's own limit of loops, for one
            return f"CEL runtime error: {_words(str(error))}"
        if found.type() == cel.Type.ERROR:
            return f"CEL runtime error: {_words(str(found.value()))}"
        if found.type() != cel.Type.BOOL:
            return "CEL runtime error: the value is neither true nor false"
        return bool(found.value())

    def _compile(self, expression: str) -> Any:  # noqa: ANN401 - the library's program
        try:
            # Types are checked by the API server, whose functions take more types than the
            # library's: a check here would refuse what it has accepted.
            parsed = self._env.compile(expression, disable_check=True)
            return self._env.deserialize(adapted(parsed.serialize()))
        except (BadExpression, RuntimeError) as error:
            return f"CEL compile error: {_words(str(error))}"


def _shown(device: SeenDevice) -> dict[str, Any]:
    """Return the variable `device`. Raises `ValueError`."""
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, dict[str, Any]] = {}
    for name, value in device.attributes.items():
        domain, key = qualified(name, device.driver)
        attributes.setdefault(domain, {})[key] = value
    for name, version in device.versions.items():
        domain, key = qualified(name, device.driver)
        attributes.setdefault(domain, {})[key] = semver(version)
    for name, amount in device.capacity.items():
        domain, key = qualified(name, device.driver)
        capacity.setdefault(domain, {})[key] = quantity(amount)
    return {
        "driver": device.driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": device.allow_multiple_allocations,
    }


def _words(error: str) -> str:
    """Return an error of the library in one line and without its code."""
    code, colon, text = error.partition(": ")
    if colon and code.replace("_", "").isupper():
        error = text
    if error.startswith(_NO_KEY):
        key = error.removeprefix(_NO_KEY).strip('"')
        error = f"no such key: {key}"
    line = error.removeprefix("ERROR: ").removeprefix("<input>:").partition("\n")[0]
    return line.partition(" [")[0][:ERROR_MAX] if line.endswith("]") else line[:ERROR_MAX]
