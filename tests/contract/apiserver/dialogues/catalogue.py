"""All dialogues by their sentence. The answers are in `answers/dialogues.json`."""

from tests.contract.apiserver.dialogues.bodies import Case
from tests.contract.apiserver.dialogues.customs import CUSTOM_CASES
from tests.contract.apiserver.dialogues.lives import LIVES
from tests.contract.apiserver.dialogues.owners import OWNERS
from tests.contract.apiserver.dialogues.pods import PODS_CASES
from tests.contract.apiserver.dialogues.reading import READING
from tests.contract.apiserver.dialogues.writing import APPLYING, TEXT

CASES: dict[str, Case] = {
    **LIVES,
    **{f"a pod {name}": case for name, case in PODS_CASES.items()},
    **CUSTOM_CASES,
    **READING,
    **OWNERS,
    **APPLYING,
    **TEXT,
}
