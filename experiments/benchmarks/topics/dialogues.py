"""Patterns of clients that await each answer: SUBSCRIBE and UNSUBSCRIBE, request and response, connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Final

from ringmq.experiments.benchmarks.topics.costs import Reading, Work
from ringmq.experiments.benchmarks.topics.meter import Meter
from ringmq.experiments.benchmarks.topics.method import TopicsMethod
from ringmq.experiments.benchmarks.topics.systems import System
from ringmq.experiments.load.client import Client, OnMessage, connected_client, ignore
from ringmq.experiments.load.raw_clients import Address
from ringmq.mqtt_front.codec.packets import Publish

REQUESTS: Final = "request/all"
REPLY_S: Final = 5.0
"""Longest wait for a response, after which it is lost."""

Step = Callable[[int], Awaitable[None]]
"""Does the unit with this number."""


async def churn(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    """SUBSCRIBE and UNSUBSCRIBE of one filter for each client, one after the other."""
    async with AsyncExitStack() as stack:
        for number in method.clients:
            clients = await _connected(stack, system.address(0), f"churn-{number}", number)

            def steps(client: Client, topic: str) -> Step:
                async def step(unit: int) -> None:
                    await client.subscribe(topic, qos=method.qos)
                    await client.unsubscribe(topic)

                return step

            workers = [steps(client, f"churn/{number}/{index}") for index, client in enumerate(clients)]
            name = "pair" if number == 1 else f"pair, {number} clients"
            reading.works.append(await _timed(workers, name, method, meter))


async def request(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    """A client subscribes to a new topic, sends its name to a client of another server, and awaits the response."""
    async with AsyncExitStack() as stack:
        responder: Client | None = None
        replies: dict[str, asyncio.Future[None]] = {}

        def respond(message: Publish) -> None:
            assert responder is not None
            _publish(responder, bytes(message.payload).decode(), b"", method.qos)

        def reply(message: Publish) -> None:
            if (waiting := replies.get(message.topic)) is not None and not waiting.done():
                waiting.set_result(None)

        (responder,) = await _connected(stack, system.address(1), "responder", 1, respond)
        await responder.subscribe_and_wait(REQUESTS, qos=method.qos)
        requesters = await _connected(stack, system.address(0), "requester", method.clients[0], reply)
        lost: list[str] = []

        def steps(client: Client, index: int) -> Step:
            async def step(unit: int) -> None:
                topic = f"reply/{index}/{unit:07d}"
                replied = replies[topic] = asyncio.get_running_loop().create_future()
                await client.subscribe(topic, qos=method.qos)
                _publish(client, REQUESTS, topic.encode(), method.qos)
                try:
                    async with asyncio.timeout(REPLY_S):
                        await replied
                except TimeoutError:
                    lost.append(topic)
                del replies[topic]
                await client.unsubscribe(topic)

            return step

        workers = [steps(client, index) for index, client in enumerate(requesters)]
        reading.works.append(await _timed(workers, "request", method, meter))
        reading.extra["lost_responses"] = len(lost)


async def connects(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    """Clients connect, subscribe to a topic of their own, and leave; some at a time."""

    async def step(unit: int) -> None:
        async with connected_client(system.address(0), f"connects-{unit}") as client:
            await client.subscribe(f"own/{unit:07d}", qos=method.qos)

    reading.works.append(await _timed([step] * method.clients[0], "client", method, meter))


def _publish(client: Client, topic: str, payload: bytes, qos: int) -> None:
    if qos:
        client.publish_qos1(topic, payload)
    else:
        client.publish(topic, payload)


async def _connected(
    stack: AsyncExitStack, address: Address, name: str, number: int, on_message: OnMessage = ignore
) -> list[Client]:
    return [
        await stack.enter_async_context(connected_client(address, f"{name}-{index}", on_message))
        for index in range(number)
    ]


async def _timed(workers: list[Step], name: str, method: TopicsMethod, meter: Meter) -> Work:
    """Share the units among workers, each of which does one after the other, until the timeout."""
    numbers = iter(range(method.count))
    latencies_s: list[float] = []

    async def repeat(step: Step, units: Iterator[int]) -> None:
        for unit in units:
            start = perf_counter()
            await step(unit)
            latencies_s.append(perf_counter() - start)

    with meter.work(name, method.count) as work:
        tasks = [asyncio.create_task(repeat(step, numbers)) for step in workers]
        done, late = await asyncio.wait(tasks, timeout=method.timeout_s)
        work.done = len(latencies_s)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for task in done:
        task.result()  # raises the error of a broken connection
    work.latencies_s = latencies_s
    return work
