"""The accounts of the NATS server, which keep a permission from reaching beyond its subject.

Permissions on subjects are not enough within one account. A reply goes to the reply subject of the
request, even if the requesting user may not publish to that subject: a reader of STATE could ask
for a message to be delivered to `$JS.API.STREAM.PURGE.…` or to a subject of COMMAND. So each
stream has an account of its own, without a user in it, and each user has one, without JetStream:
whatever a user makes the server send arrives in the user's own account, from which the user's own
permitted subjects lead on and no others.

Every user speaks plain `$JS.API.…`. An account that imports single subjects of that API would be
answered twice, by the server itself as well, so that the users import the whole of it from one
account in between (`…_API`), which knows per user where each permitted subject leads.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from shared.contracts.permissions import EVENTS, Permissions, administrator, permissions
from shared.contracts.streams import events_of, streams, with_copies_of_events
from shared.contracts.subjects import Subjects

ADMIN: Final = "admin"
"""May do everything that concerns the streams of the cluster."""

_API: Final = "$JS.API."
_ACCOUNT_INFO: Final = "$JS.API.INFO"
_STREAMED: Final = ("$JS.API.DIRECT.GET.", "$JS.API.CONSUMER.MSG.NEXT.")
"""Subjects whose reply may have several messages."""


class _Account(msgspec.Struct):
    """One account in the server's configuration."""

    users: list[dict[str, Any]] = []
    exports: dict[tuple[str, str], dict[str, Any]] = {}
    imports: list[dict[str, Any]] = []
    jetstream: bool = False

    def configuration(self) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        if self.jetstream:
            shown["jetstream"] = "enabled"
        if self.users:
            shown["users"] = self.users
        if self.exports:
            shown["exports"] = list(self.exports.values())
        if self.imports:
            shown["imports"] = self.imports
        return shown


def accounts(
    cluster: str, passwords: Mapping[str, str], namespaces: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the accounts of a cluster for the users of `passwords`; `ADMIN` may be one of them.

    `namespaces` have subscribers of their own. Their events are copied, as they are stored, to a
    stream in an account of its own.
    """
    return _AccountsBuilder(cluster, namespaces).build(passwords)


class _AccountsBuilder:
    """Builds the accounts of one cluster."""

    def __init__(self, cluster: str, namespaces: Sequence[str]) -> None:
        self._cluster = cluster
        self._namespaces = tuple(namespaces)
        self._subjects = Subjects(cluster=cluster)
        declared = streams(cluster)
        copies = {events_of(cluster, name).name: name for name in self._namespaces}
        self._specs = with_copies_of_events(declared, cluster, self._namespaces)
        self._any = declared.lease.name
        self._events = declared.events.name
        self._api = declared.events.name.removesuffix("EVENTS") + "API"
        self._accounts = {spec.name: _Account(jetstream=True) for spec in self._specs}
        self._accounts[self._api] = _Account()
        self._servers: dict[str, str] = {}
        """Subject of requests → account of the user that replies."""
        for copy, namespace in copies.items():
            self._forward_events(copy, self._subjects.events_of(namespace))

    def build(self, passwords: Mapping[str, str]) -> dict[str, Any]:
        table = permissions(self._cluster, self._namespaces)
        self._accounts |= {self._of_user(user): _Account() for user in passwords}
        self._servers = {
            granted.serves: self._of_user(user)
            for user, granted in table.items()
            if granted.serves and user in passwords
        }
        for user, password in passwords.items():
            name = self._of_user(user)
            granted = table.get(user) or administrator(self._cluster)
            account = self._accounts[name]
            entry: dict[str, Any] = {"user": user, "password": password}
            if user in table:
                entry["permissions"] = self._within(user, granted)
            account.users.append(entry)
            self._grant(name, user, granted.publish)
            self._import_messages(name, user, granted.subscribe)
        return {name: made.configuration() for name, made in self._accounts.items()}

    def _of_user(self, user: str) -> str:
        return self._api.removesuffix("API") + f"user_{user}"

    def _within(self, user: str, granted: Permissions) -> dict[str, Any]:
        """Return the permissions of a user in its own account.

        A client of a subscriber may publish any request of JetStream there: for one that its
        imports do not cover, the server replies "no responders" at once, and the client does not
        wait for its timeout.
        """
        publish: Iterable[str] = granted.publish
        if user.startswith(EVENTS):
            outside = [s for s in granted.publish if not s.startswith(_API)]
            publish = (f"{_API}>", *outside)
        within = {"publish": list(publish), "subscribe": list(granted.subscribe)}
        return {**within, "allow_responses": True} if granted.serves else within

    def _grant(self, name: str, user: str, subjects: Iterable[str]) -> None:
        for subject in subjects:
            if subject.startswith(self._subjects.presence_prefix):
                continue  # replicas of one service query each other, within their own account
            owner = self._servers.get(subject) or self._owner(subject, user)
            if subject.startswith(_API):
                local = f"{user}.{subject.removeprefix('$JS.')}"
                self._import_service(owner, subject, self._api, local)
            else:
                self._import_service(owner, subject, name, subject)
        self._import_service(self._api, f"{user}.API.>", name, f"{_API}>")

    def _import_service(self, source: str, subject: str, target: str, here: str) -> None:
        """Import: messages on `here` in the account `target` reach `subject` in `source`."""
        streamed = source == self._api or subject.startswith(_STREAMED)
        self._export(source, target, {"service": subject}, streamed=streamed)
        self._accounts[target].imports.append(
            {"service": {"account": source, "subject": subject}, "to": here}
        )

    def _import_messages(self, name: str, user: str, subjects: Iterable[str]) -> None:
        """Import the events as they are stored, and messages of the subscriber's push consumers."""
        for subject in subjects:
            if subject == "_INBOX.>":
                source = self._stream_of(user)
                self._export(source, name, {"stream": subject}, streamed=False)
                imported = {"stream": {"account": source, "subject": subject}}
                self._accounts[name].imports.append(imported)
            elif subject.startswith(f"{self._subjects.prefix}.events."):
                self._forward_events(name, subject)
            elif subject.startswith(self._subjects.republished("")):
                self._import_republished(name, subject, to=subject)

    def _forward_events(self, target: str, subject: str) -> None:
        """Let events arrive in an account under their own subjects as they are stored."""
        self._import_republished(target, self._subjects.republished(subject), to=subject)

    def _import_republished(self, target: str, subject: str, *, to: str) -> None:
        self._export(self._events, target, {"stream": subject}, streamed=False)
        imported = {"stream": {"account": self._events, "subject": subject}, "to": to}
        self._accounts[target].imports.append(imported)

    def _stream_of(self, user: str) -> str:
        """Return the stream that a subscriber reads."""
        namespace = user.removeprefix(EVENTS).removeprefix("-")
        return events_of(self._cluster, namespace).name if namespace else self._events

    def _export(self, source: str, target: str, what: dict[str, str], *, streamed: bool) -> None:
        key = next(iter(what.items()))
        export = self._accounts[source].exports.setdefault(key, {**what, "accounts": []})
        if streamed:
            export["response_type"] = "stream"
        if target not in export["accounts"]:
            export["accounts"].append(target)

    def _owner(self, subject: str, user: str) -> str:
        """Return the account that a subject leads to: that of the stream that it is about."""
        if subject in ("$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST"):
            return self._stream_of(user)
        if subject == _ACCOUNT_INFO:
            return self._any
        tokens = subject.split(".")
        for spec in self._specs:
            if spec.name in tokens:
                return spec.name
            if any(pattern.split(".")[:3] == tokens[:3] for pattern in spec.subjects):
                return spec.name
        raise ValueError(f"{subject}: belongs to no stream")
