"""paho-mqtt and aiomqtt, each as people use it: with threads, and with asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from tests.mqtt_front.real_clients.listeners import HOST, WITHIN_S, Got, Inbox, Reach


def cut(client: paho.Client) -> None:
    """End its connection below TLS, WebSocket and MQTT."""
    connected = client.socket()
    assert connected is not None
    with socket.socket(fileno=os.dup(connected.fileno())) as below:
        below.shutdown(socket.SHUT_RDWR)


class Paho:
    """With its own thread."""

    def __init__(self, reach: Reach, will: Got | None = None) -> None:
        self._inbox = Inbox()
        self._answer: Future[list[ReasonCode]] = Future()
        self._client = client = paho.Client(
            CallbackAPIVersion.VERSION2,
            protocol=MQTTProtocolVersion.MQTTv5 if reach.is_v5 else MQTTProtocolVersion.MQTTv311,
            transport="websockets" if reach.websocket else "tcp",
            reconnect_on_failure=False,
        )
        if reach.ca is not None:
            client.tls_set(str(reach.ca), reach.certificate and str(reach.certificate), reach.key and str(reach.key))
        if will is not None:
            client.will_set(will.topic, will.payload, will.qos, will.retain)
        client.on_connect = lambda *told: self._answer.set_result([told[3]])
        client.on_subscribe = lambda *told: self._answer.set_result(told[3])
        client.on_message = lambda *told: self._got(told[2])
        client.connect(HOST, reach.port)
        client.loop_start()
        self._answered()

    def _got(self, message: paho.MQTTMessage) -> None:
        self._inbox.put(Got(message.topic, message.payload, message.qos, bool(message.retain)))

    def _answered(self) -> None:
        reasons = self._answer.result(WITHIN_S)
        assert not any(reason.is_failure for reason in reasons), reasons

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self._answer = Future()
        self._client.subscribe(topic_filter, qos)
        self._answered()

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False) -> None:
        published = self._client.publish(topic, payload, qos, retain)
        published.wait_for_publish(WITHIN_S)
        assert published.is_published()

    def take(self) -> Got:
        return self._inbox.take()

    def vanish(self) -> None:
        cut(self._client)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Aiomqtt:
    """On an event loop in a thread, so that the tests are the same for all."""

    def __init__(self, reach: Reach, will: Got | None = None) -> None:
        self._inbox = Inbox()
        self._reach = reach
        self._will = None if will is None else aiomqtt.Will(will.topic, will.payload, will.qos, will.retain)
        self._connected: Future[None] = Future()
        self._client: aiomqtt.Client
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._thread = threading.Thread(target=asyncio.run, args=(self._live(),))
        self._thread.start()
        self._connected.result(WITHIN_S)

    async def _live(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        reach = self._reach
        certificates = (str(reach.ca), reach.certificate and str(reach.certificate), reach.key and str(reach.key))
        client = aiomqtt.Client(
            HOST,
            reach.port,
            protocol=aiomqtt.ProtocolVersion.V5 if reach.is_v5 else aiomqtt.ProtocolVersion.V311,
            transport="websockets" if reach.websocket else "tcp",
            tls_params=None if reach.ca is None else aiomqtt.TLSParameters(*certificates),
            will=self._will,
            timeout=WITHIN_S,
        )
        try:
            async with client as self._client:
                self._connected.set_result(None)
                reading = asyncio.create_task(self._read())
                await self._end.wait()
                reading.cancel()
        except aiomqtt.MqttError as error:
            if not self._connected.done():
                self._connected.set_exception(error)

    async def _read(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            async for message in self._client.messages:
                assert isinstance(message.payload, bytes)
                self._inbox.put(Got(str(message.topic), message.payload, message.qos, message.retain))

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN_S)

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self._do(self._client.subscribe(topic_filter, qos))

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False) -> None:
        self._do(self._client.publish(topic, payload, qos, retain))

    def take(self) -> Got:
        return self._inbox.take()

    def vanish(self) -> None:
        cut(self._client._client)

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()
