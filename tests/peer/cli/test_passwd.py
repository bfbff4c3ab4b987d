"""`ringmq passwd` as users run it, with a terminal and without, and the commands of docs/access.md."""

from __future__ import annotations

import os
import pty
import shlex
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from ringmq.mqtt_front.access.acl_file import Acl
from ringmq.mqtt_front.access.passwords import Passwords, verify
from ringmq.mqtt_front.access.rule_lines import MAX_FILE_CHARS
from ringmq.peer.cli.passwd import MAX_PASSWORD_BYTES, read_rules, with_line
from ringmq.peer.errors import PeerError
from ringmq.peer.settings.load import load

COMMAND = shlex.join([sys.executable, "-P", "-m", "ringmq"])
DOCS = Path(__file__).resolve().parents[3] / "docs" / "access.md"
DEADLINE_S = 60
QUESTIONS = (b"'alice': ", b"confirmation: ")


class Done(NamedTuple):
    status: int
    out: str
    err: str


def run(folder: Path, *arguments: str, stdin: bytes = b"") -> Done:
    """Run `ringmq passwd` without a terminal."""
    done = subprocess.run(
        [*shlex.split(COMMAND), "passwd", *arguments],
        input=stdin,
        capture_output=True,
        cwd=folder,
        timeout=DEADLINE_S,
        check=False,
        start_new_session=True,  # or it could ask at the terminal of whoever runs the tests
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def run_at_terminal(folder: Path, line: str, typed: list[str]) -> tuple[int, str]:
    """Run a shell command at a terminal and type a line at each question; its status and all that was shown."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execv("/bin/sh", ["/bin/sh", "-c", line])
    shown = b""
    try:
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # Linux: the other side is gone
                part = b""
            if not part:
                break
            shown += part
            if shown.endswith(QUESTIONS) and typed:
                os.write(terminal, typed.pop(0).encode() + b"\n")
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode()


def right(file: Path, user: str, password: bytes) -> bool:
    entry = Passwords.parse(file.read_text(encoding="utf-8")).entry(user)
    return entry is not None and verify(entry, password)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A password file with alice, whose password is `secret`, and bob, whose is `hidden`."""
    assert run(tmp_path, "pw", "alice", "--batch", stdin=b"secret\n").status == 0
    assert run(tmp_path, "pw", "bob", "--batch", stdin=b"hidden").status == 0
    return tmp_path / "pw"


def test_new_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    assert run(tmp_path, "pw", "alice", "--batch", stdin=b"secret\n") == (0, "'alice' added to pw\n", "")
    made = tmp_path / "pw"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert right(made, "alice", b"secret")
    assert "secret" not in made.read_text()
    assert [one.name for one in tmp_path.iterdir()] == ["pw"]


def test_same_password_gets_different_lines(tmp_path: Path) -> None:
    lines = set()
    for user in ("alice", "bob", "bob"):
        assert run(tmp_path, "pw", user, "--batch", stdin=b"secret").status == 0
        lines |= {line.partition(":")[2] for line in (tmp_path / "pw").read_text().splitlines()}
    assert len(lines) == 3


def test_other_lines_and_comments_stay(file: Path) -> None:
    alice, bob = file.read_text().splitlines()
    file.write_text(f"# ours\n\n{alice}\n#bob:old\n  {bob}  \n# end")
    file.chmod(0o644)
    assert run(file.parent, "pw", "bob", "--batch", stdin=b"fresh") == (0, "'bob' changed in pw\n", "")
    lines = file.read_text().split("\n")
    assert lines[:4] + lines[5:] == ["# ours", "", alice, "#bob:old", "# end", ""]
    assert right(file, "bob", b"fresh")
    assert not right(file, "bob", b"hidden")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run(file.parent, "pw", "bob", "--delete") == (0, "'bob' deleted from pw\n", "")
    assert file.read_text() == f"# ours\n\n{alice}\n#bob:old\n# end\n"


@pytest.mark.parametrize(
    ("stdin", "password"),
    [(b"a b \n", b"a b "), (b"x\r\n", b"x"), (b"\xff\x00", b"\xff\x00"), (b"x" * MAX_PASSWORD_BYTES + b"\r\n", None)],
)
def test_password_is_read_from_standard_input(tmp_path: Path, stdin: bytes, password: bytes | None) -> None:
    assert run(tmp_path, "pw", "alice", "--batch", stdin=stdin).status == 0
    assert right(tmp_path / "pw", "alice", password or stdin.strip())


@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "says"),
    [
        ((), b"", 2, "Missing argument 'FILE'."),
        (("pw",), b"", 2, "Missing argument 'USER'."),
        (("pw", "a:b", "--batch"), b"x", 2, "'a:b': a user name must not contain ':'"),
        (("pw", "a\nb", "--batch"), b"x", 2, r"'a\nb': a user name must not contain control characters"),
        (("pw", "", "--batch"), b"x", 2, "'': a user name must have 1 to 256 characters, got 0"),
        (("pw", "#a", "--batch"), b"x", 2, "'#a': a user name must not begin with '#'"),
        (("pw", "alice", "--batch", "--delete"), b"x", 2, "--delete and --batch exclude each other"),
        (("pw", "alice", "--batch"), b"", 1, "a password must have 1 to 65535 bytes"),
        (("pw", "alice", "--batch"), b"\n", 1, "a password must have 1 to 65535 bytes"),
        (("pw", "alice", "--batch"), b"\0\0\n", 1, "a password must have 1 to 65535 bytes"),
        (("pw", "alice", "--batch"), b"x" * (MAX_PASSWORD_BYTES + 1), 1, "a password must have 1 to 65535 bytes"),
        (("pw", "alice", "--batch"), b"a\nb\n", 1, "standard input must be one line with the password, got more"),
        (("pw", "alice"), b"x\nx\n", 1, "there is no terminal to ask for the password: use --batch"),
        (("pw", "eve", "--delete"), b"", 1, "pw has no user 'eve'"),
        (("none", "eve", "--delete"), b"", 1, "none has no user 'eve'"),
        (("no/pw", "alice", "--batch"), b"x", 1, "cannot write no/pw: "),
        ((".", "alice", "--batch"), b"x", 2, "Invalid value for 'FILE': File '.' is a directory."),
        (("loop", "alice", "--batch"), b"x", 1, "cannot read loop: Too many levels of symbolic links"),
        (("broken", "alice", "--batch"), b"x", 1, "broken:2: the password of 'bob' is not hashed by scrypt"),
        (("broken", "bob", "--delete"), b"", 1, "broken:2: the password of 'bob' is not hashed by scrypt"),
        (("binary", "alice", "--batch"), b"x", 1, "binary is not text in UTF-8"),
        (("/dev/zero", "alice", "--batch"), b"x", 1, f"/dev/zero: longer than {MAX_FILE_CHARS} characters"),
    ],
)
def test_errors_are_one_line_and_change_nothing(
    file: Path, arguments: tuple[str, ...], stdin: bytes, status: int, says: str
) -> None:
    folder = file.parent
    (folder / "broken").write_text("# ours\nbob:hunter2\n")
    (folder / "binary").write_bytes(b"\xff")
    (folder / "loop").symlink_to("loop")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.name != "loop"}
    done = run(folder, *arguments, stdin=stdin)
    assert (done.status, done.out) == (status, "")
    assert done.err.startswith(f"ringmq: {says}")
    assert done.err.count("\n") == 1
    assert "hunter2" not in done.err
    assert {path: path.read_bytes() for path in folder.iterdir() if path.name != "loop"} == before


def test_too_long_file_is_not_written(file: Path) -> None:
    text = file.read_text()
    full = text + "#\n" * ((MAX_FILE_CHARS - len(text)) // 2)
    file.write_text(full)
    done = run(file.parent, "pw", "eve", "--batch", stdin=b"x")
    assert (done.status, done.err) == (1, f"ringmq: pw: longer than {MAX_FILE_CHARS} characters\n")
    assert file.read_text() == full


def test_crash_while_writing_leaves_the_old_file(file: Path) -> None:
    before = file.read_bytes()
    code = """if True:
        import os, sys
        from ringmq.peer.cli import main as command
        def crash(descriptor):
            raise OSError(28, "No space left on device")
        os.fsync = crash
        command.main(["passwd", "pw", "alice", "--batch"])
    """
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"x", capture_output=True, cwd=file.parent, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (1, b"ringmq: cannot write pw: No space left on device\n")
    assert file.read_bytes() == before
    assert [one.name for one in file.parent.iterdir()] == ["pw"]


def test_readers_see_the_old_file_or_the_new_one(file: Path) -> None:
    """The file is never written in place: whoever has it open keeps the old content."""
    with file.open("rb") as reader:
        before = file.read_bytes()
        assert run(file.parent, "pw", "alice", "--batch", stdin=b"x").status == 0
        assert reader.read() == before
    assert file.read_bytes() != before


def test_symbolic_link_stays_a_link(file: Path) -> None:
    link = file.parent / "folder" / "link"
    link.parent.mkdir()
    link.symlink_to("../pw")
    assert run(link.parent, "link", "alice", "--batch", stdin=b"fresh").status == 0
    assert link.is_symlink()
    assert right(file, "alice", b"fresh")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner_of_the_file_is_kept(file: Path) -> None:
    """Or a peer that does not run as root could no longer read what root has changed."""
    os.chown(file, 12345, 23456)
    assert run(file.parent, "pw", "alice", "--batch", stdin=b"fresh").status == 0
    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 23456)


def test_concurrent_changes_are_not_lost(tmp_path: Path) -> None:
    users = [f"user-{number}" for number in range(8)]
    threads = [
        threading.Thread(target=run, args=(tmp_path, "pw", user, "--batch"), kwargs={"stdin": b"x"}) for user in users
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Passwords.parse((tmp_path / "pw").read_text())
    assert [user for user in users if found.entry(user) is None] == []


def test_password_prompt_asks_twice_and_hides_input(tmp_path: Path) -> None:
    status, shown = run_at_terminal(tmp_path, f"{COMMAND} passwd pw alice", ["secret", "secrte", "secret", "secret"])
    assert status == 0
    assert shown.count("Password of 'alice': ") == 2, "the two did not match, so both again"
    assert "secret" not in shown
    assert "secrte" not in shown
    assert right(tmp_path / "pw", "alice", b"secret")


def test_aborted_prompt_changes_nothing(file: Path) -> None:
    before = file.read_bytes()
    status, shown = run_at_terminal(file.parent, f"exec {COMMAND} passwd pw alice", ["\x03"])
    assert status == 130
    assert "Traceback" not in shown
    assert file.read_bytes() == before


def test_read_rules_returns_text_and_refuses_unreadable_files(tmp_path: Path) -> None:
    file = tmp_path / "acl"
    file.write_bytes("topic ü\r\n".encode())
    assert read_rules(file) == "topic ü\r\n"
    with pytest.raises(PeerError, match=r"^cannot read .*none: No such file or directory$"):
        read_rules(tmp_path / "none")
    with pytest.raises(PeerError, match="Is a directory"):
        read_rules(tmp_path)


@pytest.mark.parametrize(
    ("text", "line", "after"),
    [
        ("", "b:2", "b:2\n"),
        ("a:1", "b:2", "a:1\nb:2\n"),
        ("\ufeffb:1\nc:3\n", "b:2", "b:2\nc:3\n"),
        ("a:1\r\nb:1\r\n", "b:2", "a:1\r\nb:2\n"),
        ("bb:1\n#b:1\n b:1\n", None, "bb:1\n#b:1\n"),
        ("b:1\n\n", None, "\n"),
        ("a:1\n", None, "a:1\n"),
    ],
)
def test_with_line_replaces_one_line(text: str, line: str | None, after: str) -> None:
    assert with_line(text, "b", line) == after


def test_the_commands_of_the_documentation(tmp_path: Path) -> None:
    """All of them, in their order, in one folder."""
    commands = [line.strip() for line in DOCS.read_text().splitlines() if line.startswith("    ringmq ")]
    assert len(commands) == 3
    (tmp_path / "secret.txt").write_text("from a script\n")
    passwords = tmp_path / "passwords"
    for command in commands:
        status, shown = run_at_terminal(tmp_path, command.replace("ringmq", COMMAND, 1), ["secret", "secret"])
        assert status == 0, shown
        if command.endswith("alice"):
            assert right(passwords, "alice", b"secret")
    assert right(passwords, "sensor-7", b"from a script")
    assert Passwords.parse(passwords.read_text()).entry("alice") is None


def block(start: str) -> str:
    """The block of the documentation that begins like this."""
    return next(part for part in DOCS.read_text().split("```") if part.startswith(start)).removeprefix("toml")


def test_the_settings_of_the_documentation(tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_text(block("toml\n"))
    config = load(file, {})
    assert (config.passwords, config.acl) == (Path("/etc/ringmq/passwords"), Path("/etc/ringmq/acl"))
    assert (config.mqtt, config.anonymous) == (("0.0.0.0", 1883), False)


def test_the_rules_of_the_documentation() -> None:
    acl = Acl.parse(block("\n# clients"))
    alice, sensor, nobody = acl.rights("alice", "c1"), acl.rights("sensor-7", "c1"), acl.rights(None, "c1")
    assert alice.may_write("lights/hall/state")
    assert not alice.may_read("lights/emergency/state")
    assert not alice.may_read("public/x")
    assert not alice.may_write("sensors/7/temperature")
    subscriptions = ("lights/#", "lights/+/state", "#", "sensors/#", "lights/emergency/#", "$share/g/lights/#")
    assert [alice.may_subscribe(one) for one in subscriptions] == [True, True, False, False, False, False]
    assert alice.may_subscribe("$share/g/lights/hall/+")
    assert sensor.may_write("sensors/7/temperature")
    assert not sensor.may_read("sensors/7/temperature")
    assert (nobody.may_read("public/x"), nobody.may_write("public/x")) == (True, False)
    assert [rights.may_write("home/alice/x") for rights in (alice, sensor, nobody)] == [True, False, False]
    assert [rights.may_write("status/c1") for rights in (alice, sensor, nobody)] == [True, True, True]
    assert not Acl.parse("topic read a\ntopic read a/+/#").rights(None, "c").may_subscribe("a/#")
