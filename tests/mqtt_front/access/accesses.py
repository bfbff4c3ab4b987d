"""Access rules made from texts in one step."""

from __future__ import annotations

from ringmq.mqtt_front.access.access import ACL_FILE, PASSWORD_FILE, Access


def access_from(
    passwords: str | None,
    acl: str | None,
    *,
    password_file: str = PASSWORD_FILE,
    acl_file: str = ACL_FILE,
    memory_key: bytes | None = None,
) -> Access:
    """Read the texts of the files, None for a file that is not configured. Raises RuleFileError."""
    access = Access(password_file=password_file, acl_file=acl_file, memory_key=memory_key)
    access.reload(passwords, acl)
    return access
