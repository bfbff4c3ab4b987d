"""The checker: takes the history of a run, and gives each violation of a promise. Pure; knows no peers and no clients.

A subscription counts for a message if its SUBACK came before the publication and it stayed in force, on a connection
or in a kept session, until the end or well beyond the acknowledgement. `Conditions` has what the documents exempt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ringmq.experiments.chaos import promises
from ringmq.experiments.chaos.conditions import Conditions, Terms, answered_at, length
from ringmq.experiments.chaos.history import (
    Entry,
    FaultKind,
    GotMessage,
    History,
    MessageKind,
    SentMessage,
)
from ringmq.experiments.chaos.promises import Promise
from ringmq.mqtt_front.matching.topics import has_wildcard, matches, parse_shared

TAKEN_S: Final = 10.0
"""A subscription that ended must have been in force for so long after an acknowledgement to count for its message."""
HEARD_S: Final = 1.0
"""A DISCONNECT has no answer: a peer that dies within this time may not have read it, or not have kept it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that does not hold, at a time of the run."""

    promise: Promise
    at: float
    text: str
    number: int = 0
    """The message, if it is about one."""

    def line(self, origin: float = 0.0) -> str:
        return f"{self.promise.name} at {self.at - origin:.3f} s: {self.text}"


class Checker:
    """All checks of one history."""

    def __init__(self, history: History, terms: Terms) -> None:
        self._history = history
        self._terms = terms
        self._conditions = Conditions(history.faults, terms)
        self._live: defaultdict[tuple[str, int], list[GotMessage]] = defaultdict(list)
        """Deliveries that are not replays of retained messages, by client and message."""
        for got in history.deliveries:
            if got.number and not got.retain:
                self._live[got.client, got.number].append(got)
        self._exact: defaultdict[str, list[Entry]] = defaultdict(list)
        self._wild: list[Entry] = []
        self._shared: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in history.entries:
            if parse_shared(entry.filter):
                self._shared[entry.filter].append(entry)
            elif has_wildcard(entry.filter):
                self._wild.append(entry)
            else:
                self._exact[entry.filter].append(entry)
        self._matching: dict[str, list[Entry]] = {}
        self._peers = {entry.client: entry.peer for entry in history.entries}

    def violations(self) -> list[Violation]:
        """All violations, in the order of time."""
        found = [
            *self.losses(),
            *self._repetitions(),
            *self._disorder(),
            *self._strays(),
            *self._lapses_of_groups(),
            *self._late(),
            *self._lost_sessions(),
            *self._retained(),
            *self._incidents(),
        ]
        return sorted(found, key=lambda violation: violation.at)

    # Losses

    def losses(self) -> Iterator[Violation]:
        """Acknowledged messages, and wills, that a subscriber did not get."""
        for message in self._history.messages.values():
            if not self._is_promised(message):
                continue
            for entry in self._entries_for(message.topic):
                if self._counts(entry, message) and (entry.client, message.number) not in self._live:
                    yield self._loss(message, entry)
            yield from self._lost_to_groups(message)

    def _is_promised(self, message: SentMessage) -> bool:
        if message.qos == 0 or not message.wanted or message.source is MessageKind.CLEARING:
            return False
        return message.source is MessageKind.WILL or message.is_acknowledged

    def _entries_for(self, topic: str) -> list[Entry]:
        found = self._matching.get(topic)
        if found is None:
            wild = (entry for entry in self._wild if matches(entry.filter, topic))
            found = self._matching[topic] = [*self._exact.get(topic, ()), *wild]
        return found

    def _counts(self, entry: Entry, message: SentMessage) -> bool:
        """Whether this subscription must get the message."""
        if not entry.qos or not self._was_in_force(entry, message):
            return False
        return not self._conditions.excuses(message, entry.peer, entry.granted_at or 0.0)

    def _was_in_force(self, entry: Entry, message: SentMessage) -> bool:
        if not entry.is_granted or entry.granted_at is None or entry.granted_at >= message.at:
            return False
        return entry.ended_at is None or entry.ended_at > answered_at(message) + TAKEN_S

    def _loss(self, message: SentMessage, entry: Entry) -> Violation:
        kept = "kept session" if entry.kept else "live client"
        text = (
            f"{self._shown(message)} did not reach {kept} {entry.client} at peer {entry.peer}, "
            f"subscribed to {entry.filter} since {self._time(entry.granted_at)}{self._around(message)}"
        )
        return Violation(self._promise_of(message, entry), message.at, text, message.number)

    def _promise_of(self, message: SentMessage, entry: Entry) -> Promise:
        """The promise that covers a loss, by the faults near it."""
        if message.source is MessageKind.WILL:
            return promises.WILL
        near = self._conditions.near(message)
        kinds = {fault.kind for fault in near}
        cuts = [fault for fault in near if fault.kind is FaultKind.CUT]
        if cuts:
            return promises.PART if max(map(length, cuts)) > self._terms.short_cut_s else promises.CUT
        if FaultKind.POWER in kinds:
            return promises.POWER
        if any(entry.peer in fault.peers for fault in near if fault.kind is FaultKind.DOWN):
            return promises.RESTART
        if message.source is MessageKind.PROBE:
            return promises.SUBSCRIBED
        if FaultKind.DOWN in kinds:
            return promises.DEATH
        if FaultKind.PAUSED in kinds:
            return promises.PAUSE
        return promises.KEPT if entry.kept else promises.ACKNOWLEDGED

    # Groups

    def _lost_to_groups(self, message: SentMessage) -> Iterator[Violation]:
        for shared, members in self._shared.items():
            parsed = parse_shared(shared)
            if parsed is None or not matches(parsed[1], message.topic):
                continue
            relied = [member for member in members if self._counts(member, message)]
            if relied and not any((member.client, message.number) in self._live for member in members):
                names = ", ".join(f"{member.client} at peer {member.peer}" for member in relied)
                text = f"{self._shown(message)} reached no member of {shared}: {names}{self._around(message)}"
                yield Violation(promises.SHARED, message.at, text, message.number)

    def _lapses_of_groups(self) -> Iterator[Violation]:
        """Messages that several members of a group got."""
        for shared, members in self._shared.items():
            clients = {member.client for member in members}
            of_message: defaultdict[int, list[GotMessage]] = defaultdict(list)
            for (client, number), deliveries in self._live.items():
                if client in clients:
                    of_message[number].append(deliveries[0])
            for number, deliveries in of_message.items():
                message = self._history.messages.get(number)
                if message is not None and len(deliveries) > 1 and not self._may_change_member(message, deliveries):
                    names = ", ".join(f"{got.client} at {self._time(got.at)}" for got in deliveries)
                    text = f"{self._shown(message)} reached {len(deliveries)} members of {shared}: {names}"
                    yield Violation(promises.SHARED, message.at, text + self._around(message), number)

    def _may_change_member(self, message: SentMessage, deliveries: list[GotMessage]) -> bool:
        """Whether the first member's peer may have died, or been given up, before it had acknowledged the message."""
        if message.resent or self._conditions.crashed(message, message.peer, deliveries[-1].at):
            return True
        return any(
            self._conditions.crashed(message, self._peers[got.client], deliveries[-1].at)
            or self._conditions.excuses(message, self._peers[got.client])
            for got in deliveries
        )

    # Repetitions, order, strays

    def _repetitions(self) -> Iterator[Violation]:
        for (client, number), deliveries in self._live.items():
            message = self._history.messages.get(number)
            if message is None or len(deliveries) < 2 or deliveries[0].qos == 1:
                continue
            if deliveries[0].qos == 2 and self._may_repeat(message, client, deliveries[-1].at):
                continue
            promise = promises.QOS_0_ONCE if deliveries[0].qos == 0 else promises.ONCE
            times = ", ".join(self._time(got.at) for got in deliveries)
            text = f"{self._shown(message)} reached {client} {len(deliveries)} times, at {times}"
            yield Violation(promise, message.at, text + self._around(message), number)

    def _may_repeat(self, message: SentMessage, client: str, until: float) -> bool:
        """Whether a message with QoS 2 may come twice by the documents: a peer crashed, or the client resent it."""
        crashed = self._conditions.crashed
        return (
            (message.resent and self._terms.repeats)
            or message.source is MessageKind.WILL
            or crashed(message, message.peer, until)
            or crashed(message, self._peers.get(client, message.peer), until)
        )

    def _was_passed_on(self, message: SentMessage, got: GotMessage) -> bool:
        """Whether a member of a shared group may have got a message in the place of another, which was given up."""
        return any(
            self._conditions.excuses(message, entry.peer)
            or self._conditions.crashed(message, entry.peer, got.at)
            or self._conditions.erased(entry.peer, got.at)
            for members in self._shared.values()
            if any(entry.client == got.client for entry in members)
            for entry in members
        )

    def _disorder(self) -> Iterator[Violation]:
        last: dict[tuple[str, str, str, int], GotMessage] = {}
        seen: set[tuple[str, int]] = set()
        for got in self._history.deliveries:
            message = self._history.messages.get(got.number)
            if message is None or got.retain or (got.client, got.number) in seen:
                continue
            seen.add((got.client, got.number))
            if message.source is MessageKind.WILL or message.resent or self._was_passed_on(message, got):
                continue
            key = (got.client, message.client, message.topic, message.qos)
            before = last.get(key)
            if before is not None and before.number > got.number:
                earlier = self._shown(self._history.messages[before.number])
                text = f"{self._shown(message)} reached {got.client} at {self._time(got.at)}, after {earlier}"
                yield Violation(promises.ORDER, got.at, text + self._around(message), got.number)
            else:
                last[key] = got

    def _strays(self) -> Iterator[Violation]:
        filters: defaultdict[str, set[str]] = defaultdict(set)
        for entry in self._history.entries:
            parsed = parse_shared(entry.filter)
            filters[entry.client].add(parsed[1] if parsed else entry.filter)
        known: set[tuple[str, str]] = set()
        for got in self._history.deliveries:
            message = self._history.messages.get(got.number)
            if message is not None and (self._was_discarded(message) or message.topic != got.topic):
                text = f"{self._shown(message)} reached {got.client} on {got.topic}"
                yield Violation(promises.MATCH if message.wanted else promises.GOOD_BYE, got.at, text, got.number)
            if (got.client, got.topic) in known:
                continue
            known.add((got.client, got.topic))
            if not any(matches(topic_filter, got.topic) for topic_filter in filters[got.client]):
                text = f"a message to {got.topic} reached {got.client}, which subscribed to nothing like it"
                yield Violation(promises.MATCH, got.at, text, got.number)

    def _was_discarded(self, message: SentMessage) -> bool:
        """Whether it is a will whose client said good-bye, to a peer that lived long enough to hear it."""
        return not message.wanted and not self._conditions.crashed(message, message.peer, message.at + HEARD_S)

    # Answers and sessions

    def _late(self) -> Iterator[Violation]:
        """PUBACK, PUBREC and SUBACK beyond their bounds; none at all, where the connection lived on.

        The bounds are times since a peer fell silent: each fault that begins meanwhile begins them anew.
        """
        for message in self._history.messages.values():
            if message.qos == 0 or message.source is MessageKind.WILL or message.abandoned or message.resent:
                continue
            end = message.acknowledged_at or self._history.until
            waited = end - message.at
            if self._conditions.longest_wait(message.at, end) > self._terms.puback_s:
                text = f"{self._shown(message)} was {_answered(message.acknowledged_at, waited)}{self._around(message)}"
                yield Violation(promises.PUBACK, message.at, text, message.number)
        for entry in self._history.entries:
            end = entry.granted_at or entry.ended_at or self._history.until
            if entry.granted_at is None and entry.ended_at is not None:
                continue
            if self._conditions.longest_wait(entry.asked_at, end) > self._terms.suback_s:
                answered = _answered(entry.granted_at, end - entry.asked_at)
                text = f"the SUBSCRIBE of {entry.client} at peer {entry.peer} to {entry.filter} was {answered}"
                yield Violation(promises.SUBACK, entry.asked_at, text)

    def _lost_sessions(self) -> Iterator[Violation]:
        for attachment in self._history.attachments:
            if attachment.kept and attachment.returning and not attachment.present:
                text = f"{attachment.client} came back to peer {attachment.peer}, which had no session of it"
                yield Violation(promises.SESSION, attachment.opened_at, text)

    # Retained messages and incidents

    def _retained(self) -> Iterator[Violation]:
        copies: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for copy in self._history.retained:
            copies[copy.topic][copy.peer] = copy.number
        kept = self._last_retained()
        for topic, by_peer in copies.items():
            if len(set(by_peer.values())) > 1:
                shown = ", ".join(f"{number or 'none'} at peer {peer}" for peer, number in sorted(by_peer.items()))
                yield Violation(
                    promises.AGREE, self._history.until, f"the retained messages of {topic} differ: {shown}"
                )
            elif topic in kept and by_peer:
                yield from self._wrong_copy(kept[topic], next(iter(by_peer.values())))

    def _last_retained(self) -> dict[str, list[SentMessage]]:
        """By topic the messages that may be the retained one: the last acknowledged one, and all after it."""
        found: dict[str, list[SentMessage]] = {}
        for message in self._history.messages.values():
            if message.source not in (MessageKind.RETAINED, MessageKind.CLEARING):
                continue
            if message.is_acknowledged:
                found[message.topic] = [message]
            else:
                found.setdefault(message.topic, []).append(message)
        return found

    def _wrong_copy(self, candidates: list[SentMessage], number: int) -> Iterator[Violation]:
        last = candidates[0]
        allowed = {0 if message.source is MessageKind.CLEARING else message.number for message in candidates}
        if not last.is_acknowledged:  # none was acknowledged: there may be no copy
            allowed.add(0)
        if number in allowed:
            return
        promise = promises.CLEARED if last.source is MessageKind.CLEARING else promises.RETAINED
        text = f"{self._shown(last)} is not the retained message of its topic, but {number or 'none'}"
        yield Violation(promise, last.at, text + self._around(last), last.number)

    def _incidents(self) -> Iterator[Violation]:
        for incident in self._history.incidents:
            yield Violation(promises.BY_NAME[incident.promise], incident.at, incident.text)

    # Texts

    def _time(self, at: float | None) -> str:
        return "never" if at is None else f"{at:.3f}"

    def _shown(self, message: SentMessage) -> str:
        retained = ", retained" if message.retain else ""
        answer = "" if message.acknowledged_at is None else f", acknowledged at {message.acknowledged_at:.3f}"
        return (
            f"message {message.number} ({message.source}, QoS {message.qos}{retained}) of {message.client} "
            f"at peer {message.peer} to {message.topic}, sent at {message.at:.3f}{answer}"
        )

    def _around(self, message: SentMessage) -> str:
        """The faults near a message."""
        near = [
            f"{fault.text or fault.kind} {fault.start:.3f} to {self._time(fault.end)}"
            for fault in self._conditions.near(message)
        ]
        return f" [{'; '.join(near[-3:])}]" if near else ""


def _answered(at: float | None, waited_s: float) -> str:
    return f"not answered within {waited_s:.1f} s" if at is None else f"answered after {waited_s:.1f} s"


def counted(violations: Iterable[Violation]) -> dict[str, int]:
    """Violations by the name of their promise."""
    counts: dict[str, int] = {}
    for violation in violations:
        counts[violation.promise.name] = counts.get(violation.promise.name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
