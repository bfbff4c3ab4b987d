"""Who may come in, and with which rights: the password file and the ACL file together.

Decides, and does no I/O: it is given the texts of the files and, with each client, whether the listener lets anonymous
ones in. `authenticate` is slow on purpose when it has to verify a password; everything else is quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from ringmq.mqtt_front.access.acl import ALL_RIGHTS, NO_RIGHTS, Rights
from ringmq.mqtt_front.access.acl_file import Acl
from ringmq.mqtt_front.access.passwords import Entry, Passwords
from ringmq.mqtt_front.codec.reasons import Reason

PASSWORD_FILE: Final = "password file"  # noqa: S105  # how an error calls it
ACL_FILE: Final = "ACL file"


@dataclass(frozen=True, slots=True)
class Decision:
    """SUCCESS and the client's rights; or why it is refused, which is fit for its CONNACK, and no rights."""

    reason: Reason
    rights: Rights
    client_id: str
    entry: Entry | None = None
    """The line of the password file that proved who it is; None for an anonymous client."""

    def refused(self) -> Decision:
        """In its place: not authorized."""
        return _refused(Reason.NOT_AUTHORIZED, self.client_id)

    @property
    def user_name(self) -> str | None:
        """The proven one. A session belongs to it: a client with another one must not resume it."""
        return self.entry.user_name if self.entry is not None else None


class _Rules(NamedTuple):
    """What holds at one time. Replaced as a whole, so that another thread sees the old or the new."""

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
            # Without a password file a user name proves nothing, so it gives no user's rights either.
            return self.admit(None, client_id) if anonymous_allowed else _refused(Reason.NOT_AUTHORIZED, client_id)
        if password is None:
            return _refused(Reason.BAD_USER_NAME_OR_PASSWORD, client_id)
        entry = self.passwords.recall(user_name, password)
        return self.admit(entry, client_id) if entry is not None else None

    def verified(self, user_name: str, password: bytes, client_id: str) -> Decision:
        assert self.passwords is not None
        entry = self.passwords.check(user_name, password)
        if entry is None:
            # Also where anonymous clients are let in: who gives a name wants to be that user, or nobody.
            return _refused(Reason.BAD_USER_NAME_OR_PASSWORD, client_id)
        return self.admit(entry, client_id)


def _refused(reason: Reason, client_id: str) -> Decision:
    return Decision(reason, NO_RIGHTS, client_id)


class Access:
    """The rules of one peer. Without files: everybody whom the listener lets in may do everything."""

    def __init__(
        self, *, password_file: str = PASSWORD_FILE, acl_file: str = ACL_FILE, memory_key: bytes | None = None
    ) -> None:
        """The names of the files are for errors. `memory_key`: see Passwords; 32 random bytes of this process."""
        self._password_file = password_file
        self._acl_file = acl_file
        self._memory_key = memory_key
        self._rules = _Rules(None, None)

    @classmethod
    def from_texts(
        cls,
        passwords: str | None,
        acl: str | None,
        *,
        password_file: str = PASSWORD_FILE,
        acl_file: str = ACL_FILE,
        memory_key: bytes | None = None,
    ) -> Self:
        """Read the texts of the files, None where there is none. Raises RuleFileError."""
        access = cls(password_file=password_file, acl_file=acl_file, memory_key=memory_key)
        access.reload(passwords, acl)
        return access

    def reload(self, passwords: str | None, acl: str | None) -> None:
        """Let these texts hold from now on. Raises RuleFileError for a wrong one, and then both old ones still hold.

        Next, `renew` the decision of every client that is connected.
        """
        self._rules = _Rules(
            None if passwords is None else Passwords.parse(passwords, self._password_file, self._memory_key),
            None if acl is None else Acl.parse(acl, self._acl_file),
        )

    def at_once(
        self, user_name: str | None, password: bytes | None, client_id: str, anonymous_allowed: bool
    ) -> Decision | None:
        """Decide if that takes no verification, in microseconds; None says that `authenticate` must."""
        return self._rules.at_once(user_name, password, client_id, anonymous_allowed)

    def authenticate(
        self, user_name: str | None, password: bytes | None, client_id: str, anonymous_allowed: bool
    ) -> Decision:
        """Decide on a CONNECT; `client_id` is the one in force, also when the server chose it.

        Takes tens of milliseconds of a core when a password must be verified, right or wrong, user known or not: run it
        on one of a few threads, and `renew` what it gives, as the rules may have changed meanwhile.
        """
        rules = self._rules
        decision = rules.at_once(user_name, password, client_id, anonymous_allowed)
        if decision is not None:
            return decision
        assert user_name is not None
        assert password is not None
        return rules.verified(user_name, password, client_id)

    def renew(self, decision: Decision) -> Decision:
        """The decision by the rules of now, without the password. NOT_AUTHORIZED: disconnect the client, since its user
        is gone or has a new password. Otherwise its session takes the new rights: what it may no longer subscribe to,
        by `Rights.may_subscribe`, is to be dropped.
        """
        if decision.reason is not Reason.SUCCESS:
            return decision
        rules = self._rules
        entry = decision.entry
        if entry is not None and (rules.passwords is None or rules.passwords.entry(entry.user_name) != entry):
            return _refused(Reason.NOT_AUTHORIZED, decision.client_id)
        return rules.admit(entry, decision.client_id)

    def knows(self, user_name: str | None) -> bool:
        """Whether there is such a user; everybody is who has no name."""
        passwords = self._rules.passwords
        return user_name is None or (passwords is not None and passwords.entry(user_name) is not None)

    def rights_of(self, user_name: str | None, client_id: str) -> Rights:
        """Those of a session whose client is away; a user who is not known any more has none."""
        rules = self._rules
        if not self.knows(user_name):
            return NO_RIGHTS
        return ALL_RIGHTS if rules.acl is None else rules.acl.rights(user_name, client_id)
