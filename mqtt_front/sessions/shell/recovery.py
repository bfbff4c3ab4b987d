"""What a front does at its start with what the last one has left on the disk. Before any client connects."""

from __future__ import annotations

from functools import partial

import structlog

from ringmq.mqtt_front.access.access import Access
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.cluster import Enrolment, Standing
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.sessions.journal import SavedSession
from ringmq.mqtt_front.sessions.moving_session import MovingSession
from ringmq.mqtt_front.sessions.session import Session
from ringmq.mqtt_front.sessions.shell.sqlite_journal import Store

log = structlog.get_logger("front")


def restore(broker: Broker, store: Store, access: Access) -> None:
    """Fill an empty broker, and let it write to the store from now on. Raises StoreError for what cannot be read."""
    broker.journal = store
    retained = _hand_over_retained(broker, store) if broker.cluster.keeps_retained else _restore_retained(broker, store)
    subscriptions = 0
    connected = []
    for saved in store.saved():
        rights = access.rights_of(saved.user, saved.client_id)
        session = Session(saved.client_id, broker.config, rights, broker.counters, saved.user)
        session.restore(saved, store)
        broker.adopt(session)
        # Also for a session that ends now: the ring keeps its filters until it hears of their end.
        subscribed = _subscribe(broker, session, saved)
        if not access.knows(session.user):
            # The session of a removed user has no rights, so its will is not published either.
            broker.end(session)
            continue
        subscriptions += subscribed
        # A crash ends all connections without a DISCONNECT. A session without these times had a client then, or it
        # never expires and has no will; `gone` is right for both.
        if session.will_at is None and session.expires_at is None:
            connected.append(session)
        # Its client may have gone to another peer meanwhile.
        enrolment = Enrolment(session.client_id, session.user, clean=False, kept=True, restored=True)
        broker.cluster.enrol(enrolment, partial(_settled, broker, session))
    broker.wills.restore(store.delivered_wills())
    wills = store.wills()
    for will in wills:
        broker.publish_again(will)
    for session in connected:  # Now that all are there who may want its will.
        broker.gone(session, will=True)
    broker.tick()
    # The ends and wills of this start must be on the disk before a client can learn of them.
    store.commit()
    if broker.sessions or retained:
        log.info("restored", sessions=len(broker.sessions), subscriptions=subscriptions, retained=retained)


def _restore_retained(broker: Broker, store: Store) -> int:
    count = 0
    for message in store.retained_messages():
        # `set` refuses messages if the bounds are lower than those of the process before.
        if message.expired(broker.clock.now) or not broker.retained.set(message):
            store.unretained(message.topic)
        else:
            count += 1
    return count


def _hand_over_retained(broker: Broker, store: Store) -> int:
    """Give those of a time before there was a ring to who keeps them now; none of them is the front's any more."""
    messages = store.retained_messages()
    if messages and broker.cluster.take_over(
        [message for message in messages if not message.expired(broker.clock.now)]
    ):
        for message in messages:
            store.unretained(message.topic)
        log.info("retained messages were handed over", count=len(messages))
    return 0


def _subscribe(broker: Broker, session: Session, saved: SavedSession) -> int:
    count = 0
    for subscription, identifier in saved.subscriptions:
        try:
            _, first = broker.subscribe(session, subscription, identifier)
        except PacketError as error:
            session.journal.unsubscribed(session, subscription.filter)
            log.warning("a subscription was given up", filter=subscription.filter, why=str(error))
            continue
        count += 1
        if first:
            broker.announce(subscription.filter, _nobody_waits)
    return count


def _nobody_waits(reason: Reason) -> None:
    """A filter that the cluster refuses stays in its session: the cluster tries again until it has room."""


def _settled(broker: Broker, session: Session, standing: Standing, moving: MovingSession | None = None) -> None:
    """A session that now belongs to another user's client id must not be given to anybody."""
    if standing is Standing.FOREIGN and session.writer is None and broker.sessions.get(session.client_id) is session:
        broker.end(session)
