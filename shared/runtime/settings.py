"""Settings of a service: one frozen struct from flags, environment and a file.

Who wins: a flag, then `PUMICE_<SERVICE>_<FIELD>`, then `PUMICE_<FIELD>` (fields of
`CommonSettings` only), then `--settings-file` (YAML), then the default. An unknown name is
refused with the nearest known name, so that a slip never becomes a silent default. A field of
type `Secret` is never taken from argv, where every user of the machine can read it: it has
`--<field>-file` and its environment variables. Variables that Kubernetes makes for its Services
(`service_links`) are not settings, even if their names look like ones.

Called by `shared.runtime.entry`; `fields_of` serves `pumice run`, which routes flags.
"""

import difflib
import math
import pathlib
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, TypeVar

import msgspec
import yaml

from shared.runtime.common import NO_EFFECT, CommonSettings
from shared.runtime.errors import Rejected
from shared.runtime.values import Seconds, Secret, seconds, show_seconds

__all__ = [
    "WRONG_SETTINGS",
    "CommonSettings",
    "Field",
    "HelpRequested",
    "Seconds",
    "Secret",
    "fields_of",
    "load",
]

S = TypeVar("S", bound=msgspec.Struct)

WRONG_SETTINGS: Final = 2
"""Exit code of a process whose settings are refused."""

_TRUE: Final = {"true", "t", "1", "yes", "on"}
_FALSE: Final = {"false", "f", "0", "no", "off"}
_FILE_FLAG: Final = "settings-file"
_CREDENTIALS: Final = re.compile(r"://[^/@\s]*:[^/@\s]*@")


class HelpRequested(Exception):  # noqa: N818 - not an error: the user requested it
    """`--help` or `--version` was given; the text is what to print."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as the command line sees it.

    `flag` has no dashes in front. `kind` is the scalar type; `many` says that the field is a
    list (the flag may be repeated and each value may hold several, separated by commas).
    """

    name: str
    flag: str
    kind: Any
    many: bool
    choices: tuple[str, ...]
    default: object
    description: str
    common: bool

    @property
    def is_bool(self) -> bool:
        """Return whether the bare flag, without a value, means true."""
        return self.kind is bool and not self.many

    @property
    def is_inert(self) -> bool:
        """Return whether the flag is accepted for Volcano's sake and has no effect."""
        return self.description.startswith(NO_EFFECT)

    @property
    def is_secret(self) -> bool:
        """Return whether the flag names a file that holds the value."""
        return self.kind is Secret


def fields_of(cls: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Return the settings of `cls` in the order of declaration, common ones first."""
    hints = typing.get_type_hints(cls, include_extras=True)
    common = set(CommonSettings.__struct_fields__)
    return tuple(
        _field(field, hints[field.name], common=field.name in common)
        for field in msgspec.structs.fields(cls)
    )


def _field(field: msgspec.structs.FieldInfo, hint: Any, *, common: bool) -> Field:  # noqa: ANN401
    description, flag = "", field.name.replace("_", "-")
    while typing.get_origin(hint) is typing.Annotated:
        hint, *metas = typing.get_args(hint)
        for meta in metas:
            description = meta.description or description
            flag = (meta.extra or {}).get("flag", flag)
    kind, many, choices = _shape(hint)
    if kind is Secret:
        flag = f"{flag}-file"
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return Field(
        name=field.name,
        flag=flag,
        kind=kind,
        many=many,
        choices=choices,
        default=default,
        description=description,
        common=common,
    )


def _shape(hint: Any) -> tuple[Any, bool, tuple[str, ...]]:  # noqa: ANN401 - a type of any form
    """Return (scalar type, whether a list, choices) of a field's type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, tuple):
        kind, _, choices = _shape(args[0])
        return kind, True, choices
    if origin in (typing.Union, types.UnionType):
        return _shape(next(arg for arg in args if arg is not type(None)))
    if origin is typing.Literal:
        return str, False, tuple(str(arg) for arg in args)
    if origin is typing.Annotated:
        return _shape(args[0])
    return hint, False, ()


def load(cls: type[S], *, service: str, argv: Sequence[str], environ: Mapping[str, str]) -> S:
    """Return the settings of `service` from `argv` (without the program) and `environ`.

    Raises `Rejected` (one clear line that names the flag, variable or key) or `HelpRequested`.
    """
    fields = fields_of(cls)
    links = set(service_links(environ))
    environ = {name: value for name, value in environ.items() if name not in links}
    if "--help" in argv or "-h" in argv:
        raise HelpRequested(help_text(fields, service=service))
    if "--version" in argv:
        raise HelpRequested(f"pumice {version('pumice')}")
    flags, file_name = _from_flags(fields, argv)
    file_name = file_name or environ.get(_variable(service, "settings_file"), "")
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for origin in (
        _from_file(fields, file_name),
        _from_environment(fields, service, environ),
        flags,
    ):
        for name, (source, value) in origin.items():
            values[name], sources[name] = value, source
    return _build(cls, values, sources)


Given = dict[str, tuple[str, object]]
"""Field name → (what to call its source in a message, value)."""


_SHORT: Final = re.compile(r"-\w(=|$)")
"""A flag of one letter, as `-v=3`: two dashes mean the same."""


def _from_flags(fields: tuple[Field, ...], argv: Sequence[str]) -> tuple[Given, str]:
    by_flag = {field.flag: field for field in fields}
    given: dict[str, list[str]] = {}
    file_name = ""
    words = iter(argv)
    for given_flag in words:
        flag_name = f"-{given_flag}" if _SHORT.match(given_flag) else given_flag
        if not flag_name.startswith("--") or flag_name == "--":
            raise Rejected(f"unexpected argument {flag_name!r}: settings are given as --name=value")
        flag, equals, text = flag_name[2:].partition("=")
        field = by_flag.get(flag)
        if field is None and flag != _FILE_FLAG:
            raise _unknown_flag(flag, fields)
        if not equals:
            text = "true" if field is not None and field.is_bool else next(words, "")
            if not text:
                raise Rejected(f"--{flag} needs a value", field=flag)
        if _CREDENTIALS.search(text):
            raise Rejected(
                f"--{flag}: no credentials in a URL on the command line, where others can read "
                "them: use the settings for user and password",
                field=flag,
            )
        if field is None:
            file_name = text
        else:
            given.setdefault(flag, []).append(text)
    return {
        by_flag[flag].name: (f"--{flag}", _from_text(by_flag[flag], texts, f"--{flag}"))
        for flag, texts in given.items()
    }, file_name


def _unknown_flag(flag: str, fields: tuple[Field, ...]) -> Rejected:
    for field in fields:
        if field.is_secret and flag == field.flag.removesuffix("-file"):
            return Rejected(
                f"--{flag} is not taken from the command line, where others can read it: "
                f"use --{field.flag} or the environment",
                field=flag,
            )
    hint = _nearest(flag, [field.flag for field in fields] + [_FILE_FLAG], form="--{}")
    return Rejected(f"unknown flag --{flag}{hint}", field=flag)


def _from_environment(fields: tuple[Field, ...], service: str, environ: Mapping[str, str]) -> Given:
    known = {_variable(service, "settings_file")}
    found: Given = {}
    for field in fields:
        names = [_variable("", field.name)] if field.common else []
        names.append(_variable(service, field.name))
        for name in names:
            if field.is_secret and f"{name}_FILE" in environ:
                found[field.name] = (name, _secret_from(environ[f"{name}_FILE"], f"{name}_FILE"))
            if name in environ:
                value = Secret(environ[name]) if field.is_secret else None
                found[field.name] = (name, value or _from_text(field, [environ[name]], name))
        known |= {*names, *(f"{name}_FILE" for name in names if field.is_secret)}
    own = _variable(service, "")
    for name in sorted(environ):
        if name.startswith(own) and name not in known:
            hint = _nearest(name, sorted(known), form="{}")
            raise Rejected(f"unknown environment variable {name}{hint}", field=name)
    return found


def _variable(service: str, name: str) -> str:
    return "_".join(("PUMICE", service, name) if service else ("PUMICE", name)).upper()


def _from_file(fields: tuple[Field, ...], file_name: str) -> Given:
    if not file_name:
        return {}
    try:
        document = yaml.safe_load(pathlib.Path(file_name).read_text(encoding="utf-8"))
    except OSError as error:
        raise Rejected(f"settings file {file_name}: {error.strerror}", field=_FILE_FLAG) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise Rejected(
            f"settings file {file_name}: not YAML: {reason}", field=_FILE_FLAG
        ) from error
    if not isinstance(document or {}, dict):
        raise Rejected(f"settings file {file_name}: not a mapping", field=_FILE_FLAG)
    by_key = {f"{f.name}_file" if f.is_secret else f.name: f for f in fields}
    found: Given = {}
    for key, value in (document or {}).items():
        field = by_key.get(str(key).replace("-", "_"))
        where = f"settings file {file_name}: {key}"
        if field is None:
            hint = _nearest(str(key), sorted(by_key), form="{}")
            raise Rejected(f"settings file {file_name}: unknown key {key}{hint}", field=str(key))
        texts = [_plain(item) for item in (value if isinstance(value, list) else [value])]
        found[field.name] = (where, _from_text(field, texts, where))
    return found


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nearest(name: str, known: Iterable[str], *, form: str) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {form.format(close[0])}?)" if close else ""


def _from_text(field: Field, texts: Sequence[str], source: str) -> object:
    """Return the value of `field` for what was written; of several scalars the last one counts."""
    if field.many:
        items = [part.strip() for text in texts for part in text.split(",")]
        return [_scalar(field, item, source) for item in items if item]
    return _scalar(field, texts[-1], source)


def _scalar(field: Field, text: str, source: str) -> object:
    try:
        if field.kind is bool:
            return _flag_value(text)
        if field.kind is Seconds:
            return seconds(text)
        if field.kind is int:
            return int(text)
        if field.kind is float:
            return _finite(text)
    except ValueError as error:
        expected = {int: "a whole number", float: "a number"}.get(field.kind, "a value")
        raise Rejected(f"{source}: {text!r} is not {expected}", field=field.name) from error
    except Rejected as error:
        raise Rejected(f"{source}: {error}", field=field.name) from error
    if field.is_secret:
        return _secret_from(text, source)
    if field.choices and text not in field.choices:
        raise Rejected(
            f"{source}: {text!r} is not one of {', '.join(field.choices)}", field=field.name
        )
    return text


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _flag_value(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise Rejected(f"{text!r} is neither true nor false")


def _secret_from(file_name: str, source: str) -> Secret:
    try:
        return Secret(pathlib.Path(file_name).read_text(encoding="utf-8").strip())
    except OSError as error:
        raise Rejected(f"{source}: {file_name}: {error.strerror}") from error


def _build(cls: type[S], values: Mapping[str, object], sources: Mapping[str, str]) -> S:
    try:
        return msgspec.convert(dict(values), cls, dec_hook=lambda _type, value: value)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`").partition("[")[0]
        raise Rejected(f"{sources.get(name, cls.__name__)}: {reason}", field=name) from error


def help_text(fields: tuple[Field, ...], *, service: str) -> str:
    """Return the page for `--help`: own settings first, then the common ones."""
    lines = [f"usage: python -m services.{service} [--name=value ...]", ""]
    for title, common in ((f"settings of the {service}", False), ("common settings", True)):
        lines.append(f"{title}:")
        for field in fields:
            if field.common is common:
                lines += [f"  --{field.flag}{_operand(field)}", f"        {_describe(field)}"]
        lines.append("")
    lines += [
        "--version prints the version and ends.",
        f"Each setting is also read from the environment (PUMICE_{service.upper()}_<NAME>, common",
        "ones from PUMICE_<NAME> too) and from the YAML file named by --settings-file.",
    ]
    return "\n".join(lines)


def _operand(field: Field) -> str:
    if field.is_bool:
        return ""
    if field.choices:
        return " " + "|".join(field.choices)
    placeholder = {int: "NUMBER", float: "NUMBER", Seconds: "DURATION", Secret: "FILE"}
    return f" {placeholder.get(field.kind, 'TEXT')}{'[,...]' if field.many else ''}"


def _describe(field: Field) -> str:
    if field.is_secret:
        return f"{field.description} (this file holds it)"
    default = field.default
    if default is msgspec.NODEFAULT:
        return f"{field.description} (required)"
    if field.kind is Seconds and isinstance(default, float):
        shown = show_seconds(default)
    elif isinstance(default, list | tuple):
        shown = ",".join(str(item) for item in default)
    else:
        shown = _plain(default)
    return f"{field.description} (default {shown})" if shown else field.description


_PREFIX: Final = "PUMICE_"
_HOST: Final = "_SERVICE_HOST"
_URL: Final = re.compile(r"(tcp|udp|sctp)://")
_URL_NAME: Final = re.compile(r"_PORT(_\d+_(TCP|UDP|SCTP))?$")
_PART_NAME: Final = re.compile(r"_PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)$")
_PORT_NAME: Final = re.compile(r"(?P<service>.+)_SERVICE_PORT(_.+)?$")


def service_links(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of our prefix that Kubernetes made for Services, sorted.

    A Service named `pumice-admission` puts PUMICE_ADMISSION_PORT=tcp://10.0.0.1:443 and seven more
    variables into every pod of its namespace ("service links"), where settings have such names.
    None of them is read as a setting. The manifests turn links off as well; others may not.
    """
    return tuple(
        sorted(
            name
            for name, value in environ.items()
            if name.startswith(_PREFIX) and _is_link(name, value, environ)
        )
    )


def _is_link(name: str, value: str, environ: Mapping[str, str]) -> bool:
    if name.endswith(_HOST) or _PART_NAME.search(name):
        return True
    if _URL_NAME.search(name) and _URL.match(value):
        return True
    port = _PORT_NAME.match(name)
    # A port alone may be a setting (PUMICE_ADMISSION_WEBHOOK_SERVICE_PORT): a link has a host.
    return port is not None and f"{port['service']}{_HOST}" in environ
