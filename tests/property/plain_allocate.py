"""allocate and backfill the slow way: one task, one node, plain numbers (A02 to A04).

Written from the rules, without the engine's arrays, candidates, trials or hooks: what this says is
what the vectorised way has to decide. It knows the plugins priority, gang, predicates (selectors,
taints, cordons, ports, room for pods) and nodeorder's defaults, and jobs without subgroups.
"""

import copy
from dataclasses import dataclass, field


@dataclass
class PlainNode:
    """One node: amounts by resource, and who is on it."""

    name: str
    have: dict[str, int]
    labels: dict[str, str] = field(default_factory=dict)
    tainted: bool = False
    cordoned: bool = False
    used: dict[str, int] = field(default_factory=lambda: {"cpu": 0, "memory": 0, "pods": 0})
    leaving: dict[str, int] = field(default_factory=lambda: {"cpu": 0, "memory": 0, "pods": 0})
    promised: dict[str, int] = field(default_factory=lambda: {"cpu": 0, "memory": 0, "pods": 0})
    scored: dict[str, int] = field(default_factory=lambda: {"cpu": 0, "memory": 0})
    ports: set[int] = field(default_factory=set)

    def future(self, name: str) -> int:
        return self.have[name] - self.used[name] + self.leaving[name] - self.promised[name]


@dataclass
class PlainTask:
    """One pod: what it asks for and where it is."""

    name: str
    index: int
    cpu: int
    memory: int
    role: str = ""
    port: int = 0
    selector: dict[str, str] = field(default_factory=dict)
    tolerates: bool = False
    node: str = ""
    status: str = "Pending"

    @property
    def request(self) -> dict[str, int]:
        return {"cpu": self.cpu, "memory": self.memory, "pods": 1}

    @property
    def scoring(self) -> dict[str, int]:
        """Requests as nodeorder counts them: 100m and 200MiB for what is not stated."""
        return {"cpu": self.cpu or 100, "memory": self.memory or 200 * 2**20}

    @property
    def best_effort(self) -> bool:
        return not self.cpu and not self.memory

    @property
    def signature(self) -> tuple[object, ...]:
        return self.cpu, self.memory, self.port, tuple(self.selector.items()), self.tolerates


@dataclass
class PlainJob:
    """One gang."""

    name: str
    queue: str
    priority: int
    minimum: int
    tasks: list[PlainTask]
    failed: set[str] = field(default_factory=set)
    """Roles of which a task found no node in this session."""

    def count(self, *statuses: str) -> int:
        return sum(task.status in statuses for task in self.tasks)

    @property
    def idle_best_effort(self) -> int:
        return sum(task.best_effort and task.status == "Pending" for task in self.tasks)

    @property
    def counted(self) -> int:
        return self.count("Running", "Allocated", "Binding") + self.idle_best_effort

    @property
    def ready(self) -> bool:
        return self.counted >= self.minimum

    @property
    def pipelined(self) -> bool:
        return self.counted + self.count("Pipelined") >= self.minimum

    @property
    def order(self) -> tuple[object, ...]:
        return -self.priority, self.ready, f"ns/{self.name}"


class Plain:
    """A cluster, and what allocate and backfill make of it."""

    def __init__(self, nodes: list[PlainNode], jobs: list[PlainJob]) -> None:
        self.nodes = nodes
        self.jobs = jobs

    def run(self) -> None:
        """Give tasks the status and node that both actions decide on."""
        self._allocate()
        self._backfill()

    # --- allocate ------------------------------------------------------------------------------

    def _allocate(self) -> None:
        work = {job.name: self._wanting(job) for job in self.jobs if self._valid(job)}
        waiting = [job for job in self.jobs if work.get(job.name)]
        for queue in sorted({job.queue for job in waiting}):
            line = [job for job in waiting if job.queue == queue]
            while line:
                job = min(line, key=lambda job: job.order)
                line.remove(job)
                if self._turn(job, work[job.name]) and work[job.name]:
                    line.append(job)

    def _valid(self, job: PlainJob) -> bool:
        return len(job.tasks) >= job.minimum

    def _wanting(self, job: PlainJob) -> list[PlainTask]:
        found = [t for t in job.tasks if t.status == "Pending" and not t.best_effort]
        return sorted(found, key=lambda task: task.index)

    def _turn(self, job: PlainJob, tasks: list[PlainTask]) -> bool:
        """Place until the job is ready; tell whether it is."""
        before = copy.deepcopy(self.nodes), {t.name: (t.status, t.node) for t in job.tasks}
        while tasks:
            task = tasks.pop(0)
            if task.role and task.role in job.failed:
                continue
            if not self._place(task):
                job.failed.add(task.role)
                while tasks and (tasks[0].signature, tasks[0].role) == (task.signature, task.role):
                    tasks.pop(0)
                if not self._others_may_do(job):
                    break
                continue
            if job.ready:
                break
        if job.ready:
            self._bind(job)
            return True
        if not job.pipelined:
            self.nodes = before[0]
            for task in job.tasks:
                task.status, task.node = before[1][task.name]
        return False

    @staticmethod
    def _others_may_do(job: PlainJob) -> bool:
        """Tell whether tasks of other roles could still complete the job; no role has a minimum."""
        return len(job.tasks) > 1 and job.minimum != len(job.tasks)

    def _bind(self, job: PlainJob) -> None:
        """Bind what is allocated, each pod where its node has room beside all that is bound."""
        for task in sorted(job.tasks, key=lambda task: task.index):
            if task.status == "Allocated" and self._holds(task):
                task.status = "Binding"

    def _holds(self, task: PlainTask) -> bool:
        """Tell whether a node holds a task beside all but those that are allocated, not bound."""
        node = next(node for node in self.nodes if node.name == task.node)
        others = [t for job in self.jobs for t in job.tasks if t.node == task.node]
        loose = [t for t in others if t.status == "Allocated"]
        return all(
            node.have[name] - node.used[name] + sum(t.request[name] for t in loose) >= amount
            for name, amount in task.request.items()
        )

    # --- backfill ------------------------------------------------------------------------------

    def _backfill(self) -> None:
        for job in sorted(self.jobs, key=lambda job: (job.queue, job.order)):
            wanting = [t for t in job.tasks if t.best_effort and t.status == "Pending"]
            for task in sorted(wanting, key=lambda task: task.index) if self._valid(job) else ():
                fitting = [node for node in self.nodes if self._admits(node, task)]
                if fitting:
                    self.put(task, self._best(task, fitting), waiting=False)
                    if job.ready:
                        self._bind(job)

    # --- one task ------------------------------------------------------------------------------

    def _place(self, task: PlainTask) -> bool:
        open_ = [node for node in self.nodes if self._admits(node, task)]
        fits = [n for n in open_ if all(n.future(k) >= v for k, v in task.request.items())]
        now = [
            node
            for node in fits
            if all(node.have[k] - node.used[k] >= v for k, v in task.request.items())
        ]
        for candidates, waiting in ((now, False), (fits, True)):
            if candidates:
                self.put(task, self._best(task, candidates), waiting=waiting)
                return True
        return False

    @staticmethod
    def _admits(node: PlainNode, task: PlainTask) -> bool:
        """Ask the predicates, in no order: one refusal is enough."""
        if node.cordoned or (node.tainted and not task.tolerates):
            return False
        if task.port in node.ports:
            return False
        if any(node.labels.get(key) != value for key, value in task.selector.items()):
            return False
        return node.used["pods"] + node.promised["pods"] < node.have["pods"]

    @staticmethod
    def put(task: PlainTask, node: PlainNode, *, waiting: bool) -> None:
        """Count a task in."""
        task.status, task.node = "Pipelined" if waiting else "Allocated", node.name
        target = node.promised if waiting else node.used
        for name, amount in task.request.items():
            target[name] += amount
        for name, amount in task.scoring.items():
            node.scored[name] += amount
        if task.port:
            node.ports.add(task.port)

    def _best(self, task: PlainTask, candidates: list[PlainNode]) -> PlainNode:
        scores = {node.name: least(node, task) + balanced(node, task) for node in candidates}
        return max(candidates, key=lambda node: (scores[node.name], -self.nodes.index(node)))


def least(node: PlainNode, task: PlainTask) -> int:
    """Return nodeorder's score for how little of a node is requested."""
    parts = []
    for name in ("cpu", "memory"):
        want = node.scored[name] + task.scoring[name]
        parts.append(max(0, node.have[name] - want) * 100 // node.have[name])
    return sum(parts) // 2


def balanced(node: PlainNode, task: PlainTask) -> int:
    """Return nodeorder's score for how evenly CPU and memory are used."""
    if task.best_effort:
        return 0
    held = {name: node.used[name] + node.promised[name] for name in ("cpu", "memory")}
    then = {name: held[name] + task.request[name] for name in held}
    return 50 + (50 + _evenness(node, then) - _evenness(node, held)) // 2


def _evenness(node: PlainNode, used: dict[str, int]) -> int:
    cpu, memory = (min(1.0, used[name] / node.have[name]) for name in ("cpu", "memory"))
    return int((1 - abs(cpu - memory) / 2) * 100)
