"""What-ifs on the live page: the form, what is wrong with it at the field, the answer, the link."""

from msgspec.structs import replace

from shared.api.visibility import QueueResource
from shared.api.whatifs import QueueChange
from tests.unit.web.page_world import GPU
from tests.web.browser import Keys, Page, chromium, until


def ask(page):
    page.run("document.querySelector('form button').click()")


def choose(page, queue):
    """Choose the queue that changes, as soon as it is offered."""
    field = 'select[name="change"]'
    until(lambda: page.all(f'{field} option[value="{queue}"]'), "the queue is offered")
    page.run(
        "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
        "field.dispatchEvent(new Event('change', { bubbles: true }));",
        field,
        queue,
    )


def capability_of(served, queue):
    [tree] = [each for each in served.world.queues if each.metadata.name == queue]
    return next(each.capability for each in tree.resources if each.resource == "cpu")


def test_a_what_if_is_answered_and_its_link_asks_the_same(page):
    page.go("what-if")
    page.shows("Nothing is created.")
    page.fill('input[name="pods"]', "4")
    ask(page)
    page.shows("It starts now.")
    page.shows("rack-000-node-00")
    address = page.driver.current_url
    assert "pods=4" in address
    page.go("queues")
    page.shows("root")
    page.go(address.partition("#/")[2])
    until(lambda: page.run("return document.querySelector('[name=pods]')?.value") == "4", "4 pods")
    page.fill('input[name="pods"]', "1000")
    ask(page)
    page.shows("It waits at the gate “gang”.")


def test_a_node_that_is_drained_names_the_jobs_that_lose_pods(page, small):
    page.go("what-if")
    page.shows("Nothing is created.")
    page.fill('input[name="pods"]', "0")
    page.fill('input[name="drain"]', small.world.nodes[0].metadata.name)
    ask(page)
    page.shows("1500 pods move; 9 find no place.")
    [first, second] = page.all('[aria-label="Lose pods"] tbody tr')
    assert first.text.endswith("8 fewer than it needs")
    assert second.text.endswith("1 enough to go on")
    page.shows("and 1000 more")


def test_a_job_that_waits_for_its_queue_starts_now_once_the_queue_may_have_more(page, small):
    has = int(capability_of(small, "team-00"))
    page.go("what-if")
    page.shows("Nothing is created.")
    for name, text in (("queue", "team-00"), ("pods", "1"), ("cpu", str(has + 1))):
        page.fill(f'input[name="{name}"]', text)
    ask(page)
    page.shows("It waits at the gate “enqueue”.")
    choose(page, "team-00")
    now = "return document.querySelector('[name=\"capability.cpu\"]').placeholder"
    assert page.run(now) == f"now {has}"
    page.fill('input[name="capability.cpu"]', str(has + 1))
    ask(page)
    page.shows("It starts now.")
    assert [spec for _, spec in small.world.asked][-1].change_queue == QueueChange(
        name="team-00", capability={"cpu": str(has + 1)}
    )


def test_a_question_about_a_queue_alone_names_the_jobs_that_would_start_and_its_link_asks_the_same(
    page, small
):
    page.go("what-if")
    page.shows("Nothing is created.")
    page.fill('input[name="pods"]', "0")
    choose(page, "team-01")
    written = {"weight": "5", "deserved.memory": "2Ti", "guarantee.nvidia.com/gpu": "8"}
    for name, text in written.items():
        page.fill(f'input[name="{name}"]', text)
    ask(page)
    page.shows("The queue team-01 changes.")
    line = [job for job in small.world.jobs if job.queue == "team-01"]
    assert len(page.all('[aria-label="Would start"] tbody tr')) == len(line) > 0
    address = page.driver.current_url
    page.go("queues")
    page.shows("root")
    page.go(address.partition("#/")[2])
    until(lambda: page.all('select[name="change"]'), "the form")
    assert page.run("return document.querySelector('[name=change]').value") == "team-01"
    ask(page)
    page.shows("The queue team-01 changes.")
    first, second = [spec for _, spec in small.world.asked]
    assert first == second
    assert first.change_queue == QueueChange(
        name="team-01", weight=5, deserved={"memory": "2Ti"}, guarantee={GPU: "8"}
    )


def test_an_amount_that_is_none_is_told_at_its_field_and_not_asked_about(page, small):
    page.go("what-if")
    page.shows("Nothing is created.")
    choose(page, "team-00")
    page.fill('input[name="capability.cpu"]', "many")
    page.press(Keys.ENTER)
    told = "#wrong-capability\\.cpu"
    page.shows("An amount is wanted", told)
    focused = "return [document.activeElement.name, document.activeElement.ariaInvalid]"
    assert page.run(focused) == ["capability.cpu", "true"]
    page.fill('input[name="capability.cpu"]', "2k")
    until(lambda: not page.text(told), "it is mended")
    page.fill('input[name="weight"]', "0")
    page.press(Keys.ENTER)
    until(lambda: page.text("#wrong-weight"), "a weight of 0 is refused")
    assert [spec for _, spec in small.world.asked] == []
    choose(page, "")  # what is not asked about is not checked
    ask(page)
    page.shows("It starts now.")


def test_what_is_written_about_a_queue_outlives_changes_of_the_tree(page, small):
    page.go("what-if")
    page.shows("Nothing is created.")
    choose(page, "team-00")
    page.fill('input[name="capability.cpu"]', "7")

    def another_resource():
        at = next(
            at for at, each in enumerate(small.world.queues) if each.metadata.name == "team-00"
        )
        queue = small.world.queues[at]
        npu = QueueResource(resource="huawei.com/npu", capability="4")
        small.world.queues[at] = replace(queue, resources=(*queue.resources, npu))

    small.change(another_resource, "queuetrees")
    until(lambda: page.all('[name="capability.huawei.com/npu"]'), "the new resource has a field")
    focused = "return [document.activeElement.name, document.activeElement.value]"
    assert page.run(focused) == ["capability.cpu", "7"]


PASTED = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: mine}
spec:
  tasks:
  - name: worker
    replicas: %d
    template: {spec: {containers: [{name: main, image: busybox}]}}
"""


def test_a_pasted_job_is_asked_about(page):
    page.go("what-if")
    page.shows("Or paste")
    page.run("document.querySelector('details').open = true")
    for replicas, words in ((7, "It starts now."), (700, "waits at the gate")):
        page.fill("textarea", PASTED % replicas)
        ask(page)
        page.shows(words)


def test_what_is_no_job_is_refused_in_words(browser, small):
    page = Page(browser, small, "what-if")
    page.shows("Or paste")
    page.run("document.querySelector('details').open = true")
    page.fill("textarea", "kind: Pod")
    ask(page)
    page.shows("a Job of batch.volcano.sh is wanted, and here is Pod")


def test_the_answer_is_in_sight_on_a_phone(small):
    with chromium(width=390, height=844) as driver:
        page = Page(driver, small, "what-if")
        page.shows("Nothing is created.")
        ask(page)
        page.shows("It starts now.")
        top = "return document.querySelector('.verdict').getBoundingClientRect().top"
        until(lambda: 0 <= page.run(top) < 844, "the answer is in sight")
