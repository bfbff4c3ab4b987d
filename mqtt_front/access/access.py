"""Decides which clients are admitted, and with which rights: the password file and the ACL file together.

Does no I/O: it is given the texts of the files and, with each client, whether the listener admits anonymous clients.
`authenticate` is slow on purpose when it has to verify a password; everything else is quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ringmq.mqtt_front.access.acl import ALL_RIGHTS, NO_RIGHTS, Rights
from ringmq.mqtt_front.access.acl_file import Acl
from ringmq.mqtt_front.access.passwords import Entry, Passwords
from ringmq.mqtt_front.codec.reasons import Reason

PASSWORD_FILE: Final = "password file"  # noqa: S105  # its name in errors
ACL_FILE: Final = "ACL file"


@dataclass(frozen=True, slots=True)
class Decision:
    """SUCCESS and the client's rights; or the reason for its CONNACK, and no rights."""

    reason: Reason
    rights: Rights
    client_id: str
    entry: Entry | None = None
    """The entry of the password file that proved the user; None for an anonymous client."""

    def refused(self) -> Decision:
        """The same client, refused as not authorized."""
        return _refused(Reason.NOT_AUTHORIZED, self.client_id)

    @property
    def user_name(self) -> str | None:
        """The proven user name. A session belongs to it: a client with another user name must not resume it."""
        return self.entry.user_name if self.entry is not None else None


class _Rules(NamedTuple):
    """The rules in force. Replaced as a whole, so that another thread sees either the old or the new rules."""

    passwords: Passwords | None
    acl: Acl | None

    def admit(self, entry: Entry | None, client_id: str) -> Decision:
        user_name = entry.user_name if entry is not None else None
        rights = ALL_RIGHTS if self.acl is None else self.acl.rights(user_name, client_id)
        return Decision(Reason.SUCCESS, rights, client_id, entry)

    def at_once(
        self, user_name: str | None, password: bytes | None, client_id: str, anonymous_allowed: bool
    ) -> Decision | None:
        if user_name is None or self.passwords is None:
            # A user name proves nothing without a password file, so it grants no user's rights either.
            return self.admit(None, client_id) if anonymous_allowed else _refused(Reason.NOT_AUTHORIZED, client_id)
        if password is None:
            # Both versions of MQTT allow a user name without a password, which proves nothing.
            return _refused(Reason.BAD_USER_NAME_OR_PASSWORD, client_id)
        entry = self.passwords.recall(user_name, password)
        return self.admit(entry, client_id) if entry is not None else None

    def verified(self, user_name: str, password: bytes, client_id: str) -> Decision:
        assert self.passwords is not None
        entry = self.passwords.check(user_name, password)
        if entry is None:
            # Not admitted as anonymous either: a client that gives a name wants the rights of that user.
            return _refused(Reason.BAD_USER_NAME_OR_PASSWORD, client_id)
        return self.admit(entry, client_id)


def _refused(reason: Reason, client_id: str) -> Decision:
    return Decision(reason, NO_RIGHTS, client_id)


class Access:
    """The rules of one peer. Without files, every client that the listener admits may do everything."""

    def __init__(
        self, *, password_file: str = PASSWORD_FILE, acl_file: str = ACL_FILE, memory_key: bytes | None = None
    ) -> None:
        """Errors show the names of the files. `memory_key`: 32 random bytes of this process, see Passwords."""
        self._password_file = password_file
        self._acl_file = acl_file
        self._memory_key = memory_key
        self._rules = _Rules(None, None)

    def reload(self, passwords: str | None, acl: str | None) -> None:
        """Replace the rules by these texts. Raises RuleFileError for an invalid text, and both old rules stay in force.

        Next, `renew` the decision of every connected client.
        """
        self._rules = _Rules(
            None if passwords is None else Passwords.parse(passwords, self._password_file, self._memory_key),
            None if acl is None else Acl.parse(acl, self._acl_file),
        )

    def at_once(
        self, user_name: str | None, password: bytes | None, client_id: str, anonymous_allowed: bool
    ) -> Decision | None:
        """Decide in microseconds, without verifying a password; None if `authenticate` must decide."""
        return self._rules.at_once(user_name, password, client_id, anonymous_allowed)

    def authenticate(
        self, user_name: str | None, password: bytes | None, client_id: str, anonymous_allowed: bool
    ) -> Decision:
        """Decide on a CONNECT; `client_id` is the id in use, perhaps assigned by the server.

        Takes tens of milliseconds of a core when a password must be verified, right or wrong, user known or not: run it
        on one of a few threads, and `renew` the decision, as the rules may have changed meanwhile.
        """
        # Read once: `reload` may replace the rules while the thread computes.
        rules = self._rules
        decision = rules.at_once(user_name, password, client_id, anonymous_allowed)
        if decision is not None:
            return decision
        assert user_name is not None
        assert password is not None
        return rules.verified(user_name, password, client_id)

    def renew(self, decision: Decision) -> Decision:
        """The decision by the current rules, without the password.

        NOT_AUTHORIZED: disconnect the client, since its user was removed or has a new password. Otherwise give its
        session the new rights, and drop subscriptions that `Rights.may_subscribe` no longer allows.
        """
        if decision.reason is not Reason.SUCCESS:
            return decision
        rules = self._rules
        entry = decision.entry
        # Each new password has a new salt, so its entry differs even if the password is the same.
        if entry is not None and (rules.passwords is None or rules.passwords.entry(entry.user_name) != entry):
            return _refused(Reason.NOT_AUTHORIZED, decision.client_id)
        return rules.admit(entry, decision.client_id)

    def knows(self, user_name: str | None) -> bool:
        """Whether the user exists; True for anonymous clients."""
        passwords = self._rules.passwords
        return user_name is None or (passwords is not None and passwords.entry(user_name) is not None)

    def rights_of(self, user_name: str | None, client_id: str) -> Rights:
        """The rights of a session whose client is not connected; a removed user has none."""
        rules = self._rules
        if not self.knows(user_name):
            return NO_RIGHTS
        return ALL_RIGHTS if rules.acl is None else rules.acl.rights(user_name, client_id)
