"""Every dialogue gets the answers that the real API server gave, from both servers."""

import pytest

from tests.contract.apiserver.client import Side
from tests.contract.apiserver.dialogues.catalogue import CASES
from tests.contract.apiserver.recorded import answer_to, answers

TOPIC = "dialogues"


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("name", CASES)
async def test_the_answers_are_those_of_kube_apiserver(side: Side, name: str) -> None:
    seen = await (await side.dialogue()).play(CASES[name])
    assert seen == answer_to(TOPIC, name, side=side, seen=seen)


def test_there_is_an_answer_to_each_dialogue_and_to_nothing_else() -> None:
    assert sorted(answers(TOPIC)) == sorted(CASES)
