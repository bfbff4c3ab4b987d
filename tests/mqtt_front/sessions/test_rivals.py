"""Client ids whose connections throw each other out wait longer and longer."""

from __future__ import annotations

from ringmq.mqtt_front.sessions.rivals import LONGEST_WAIT_S, MOST_RIVALS, PATIENT_TAKEOVERS, WINDOW_S, Rivals


def test_a_few_takeovers_cost_nothing_and_further_ones_ever_more_up_to_a_bound() -> None:
    rivals = Rivals()
    waits = []
    for number in range(8):
        waits.append(rivals.wait_s("c", float(number)))
        rivals.taken_over("c", float(number))
    assert waits[:PATIENT_TAKEOVERS] == [0.0] * PATIENT_TAKEOVERS
    assert waits[PATIENT_TAKEOVERS:] == [1.0, 2.0, 4.0, LONGEST_WAIT_S, LONGEST_WAIT_S]
    assert rivals.wait_s("other", 8.0) == 0.0


def test_takeovers_are_forgotten_after_a_while() -> None:
    rivals = Rivals()
    for _ in range(PATIENT_TAKEOVERS):
        rivals.taken_over("c", 1.0)
    assert rivals.wait_s("c", 1.0) > 0.0
    assert rivals.wait_s("c", 1.0 + WINDOW_S) == 0.0


def test_a_client_id_is_news_once() -> None:
    rivals = Rivals()
    for _ in range(PATIENT_TAKEOVERS + 1):
        rivals.taken_over("c", 1.0)
        rivals.wait_s("c", 1.0)
    assert rivals.take_news() == ["c"]
    assert rivals.take_news() == []


def test_the_oldest_client_ids_are_forgotten_when_there_are_too_many() -> None:
    rivals = Rivals()
    for _ in range(PATIENT_TAKEOVERS):
        rivals.taken_over("first", 1.0)
    for number in range(MOST_RIVALS):
        rivals.taken_over(f"c-{number}", 1.0)
    assert rivals.wait_s("first", 1.0) == 0.0
