"""The commands of vcctl and of Slurm's names, with their flags and words: Volcano's, as they are.

Only `main` reads this table. `action` names the function that carries a command out; its module is
imported when the command is called.
"""

from typing import Final

from pumice.vcctl.flags import BOOL, DURATION, INT, INT32, LEVEL, MODULES, STRING, Flag
from pumice.vcctl.tree import VcctlCommand

_LOGS: Final = (
    Flag(
        "log-flush-frequency", DURATION, "Maximum number of seconds between log flushes", "", "5s"
    ),
    Flag("v", LEVEL, "number for the log level verbosity", "v"),
    Flag(
        "vmodule",
        MODULES,
        "comma-separated list of pattern=N settings for file-filtered logging "
        "(only works for the default text log format)",
    ),
)
"""Flags of Go's logger. They are read and checked; there is no such logger here."""
_CLUSTER: Final = (
    Flag("kubeconfig", STRING, "(optional) absolute path to the kubeconfig file", "k"),
    Flag("master", STRING, "the address of apiserver", "s"),
)
_SIZE: Final = (
    Flag("min", INT, "the minimal available tasks of job", "m", 1),
    Flag("replicas", INT, "the total tasks of job", "r", 1),
)
_AMOUNT: Final = "cpu=1000m,memory=100Mi"
_AMOUNTS: Final = (
    Flag("requests", STRING, "the resource request of the task", "R", _AMOUNT),
    Flag("limits", STRING, "the resource limit of the task", "L", _AMOUNT),
)


def _namespace(thing: str, short: str = "n") -> Flag:
    return Flag("namespace", STRING, f"the namespace of {thing}", short, "default")


def _name(thing: str, short: str = "N") -> Flag:
    return Flag("name", STRING, f"the name of {thing}", short)


def _everywhere(things: str) -> Flag:
    return Flag("all-namespaces", BOOL, f"list {things} in all namespaces")


_LISTED_JOBS: Final = (
    _everywhere("jobs"),
    Flag("scheduler", STRING, "list job with specified scheduler name", "S"),
    Flag("selector", STRING, "fuzzy matching jobName"),
)


def _leaf(name: str, about: str, action: str, *flags: Flag) -> VcctlCommand:
    """Return a command that does something with the cluster."""
    return VcctlCommand(name, short=about, long=about, action=action, flags=(*_CLUSTER, *flags))


def _group(name: str, about: str, *children: VcctlCommand) -> VcctlCommand:
    """Return a command that only leads to others."""
    return VcctlCommand(name, short=about, long=about, children=children)


def _one_job(name: str, about: str, action: str) -> VcctlCommand:
    return _leaf(name, about, f"jobs:{action}", _namespace("job"), _name("job"))


def _job() -> VcctlCommand:
    return _group(
        "job",
        "vcctl command line operation job",
        _leaf(
            "run",
            "run job by parameters from the command line",
            "jobs:run",
            *_SIZE,
            *_AMOUNTS,
            Flag("filename", STRING, "the yaml file of job", "f"),
            Flag("image", STRING, "the container image of job", "i", "busybox"),
            Flag("scheduler", STRING, "the scheduler for this job", "S", "volcano"),
            _namespace("job"),
            _name("job"),
        ),
        _leaf(
            "list",
            "list job information",
            "jobs:show",
            *_LISTED_JOBS,
            Flag("queue", STRING, "list job with specified queue name", "q"),
            _namespace("job"),
        ),
        _one_job("view", "show job information", "view"),
        _one_job("suspend", "abort a job", "suspend"),
        _one_job("resume", "resume a job", "resume"),
        _one_job("delete", "delete a job", "delete"),
    )


def _queue() -> VcctlCommand:
    name = _name("queue", "n")
    return _group(
        "queue",
        "Queue Operations",
        _leaf(
            "create",
            "creates queue",
            "queues:create",
            Flag("name", STRING, "the name of queue", "n", "test"),
            Flag("state", STRING, "the state of queue", "S", "Open"),
            Flag("weight", INT32, "the weight of the queue", "w", 1),
        ),
        _leaf("delete", "delete queue", "queues:delete", name),
        _leaf(
            "operate",
            "operate queue",
            "queues:operate",
            name,
            Flag("weight", INT32, "the weight of the queue", "w"),
            Flag(
                "action",
                STRING,
                "operate action to queue, valid actions are open, close, update",
                "a",
            ),
        ),
        _leaf("list", "lists all the queue", "queues:show"),
        _leaf("get", "get a queue", "queues:get", name),
    )


def _declared(noun: str, spoken: str, kind: str, *listed: Flag) -> VcctlCommand:
    """Return the group of commands of a kind whose objects come from files."""
    file = Flag("file", STRING, f"the path to the YAML file containing the {spoken}", "f")
    one = (_namespace(spoken), _name(spoken))
    form = Flag("format", STRING, "the format of output", "o", "yaml")
    return _group(
        noun,
        f"vcctl command line operation {noun}",
        _leaf("create", f"create a {noun}", f"declared:{kind}.create", file),
        _leaf("list", f"list {noun}s", f"declared:{kind}.show", *listed, _namespace(spoken)),
        _leaf("get", f"get a {noun}", f"declared:{kind}.get", *one),
        _leaf("delete", f"delete a {noun}", f"declared:{kind}.delete", file, *one),
        _leaf("describe", f"describe a {noun}", f"declared:{kind}.describe", form, *one),
    )


def _pod() -> VcctlCommand:
    return _group(
        "pod",
        "vcctl command line operation pod",
        _leaf(
            "list",
            "list pod information created by vcjob",
            "pods:show",
            _everywhere("pods"),
            Flag("job", STRING, "list pod with specified job name", "j"),
            Flag("queue", STRING, "list pod with specified queue name", "q"),
            _namespace("pod"),
        ),
    )


def _vcctl() -> VcctlCommand:
    about = "Print the version information"
    version = VcctlCommand(
        "version", short=about, long=about, example="vcctl version", action="version"
    )
    flows = _declared("jobflow", "jobflow", "FLOWS", _everywhere("jobflows"))
    templates = _declared("jobtemplate", "job template", "TEMPLATES")
    return VcctlCommand(
        "vcctl",
        shared=_LOGS,
        children=(_job(), _queue(), templates, flows, _pod(), version),
    )


def _slurm(name: str, about: str, action: str, *flags: Flag) -> VcctlCommand:
    """Return a program without commands; ⚠ its `-n` is a name and its `-N` a namespace."""
    return _leaf(name, about, action, *flags)._replace(shared=_LOGS)


def _vsub() -> VcctlCommand:
    place = "overwrite the value of"
    return _slurm(
        "vsub",
        "submit a job with specified name and arguments. yaml/json file is not accepted, "
        "you may refer to kubectl.",
        "jobs:submit",
        *_SIZE,
        *_AMOUNTS,
        Flag("command", STRING, "the command of job", "c"),
        Flag(
            "image",
            STRING,
            f"the container image of job, {place} 'VOLCANO_DEFAULT_IMAGE'",
            "i",
            shown="busybox",
        ),
        Flag(
            "namespace",
            STRING,
            f"the namespace of job, {place} 'VOLCANO_DEFAULT_JOB_NAMESPACE'",
            "N",
            shown="default",
        ),
        Flag(
            "scheduler",
            STRING,
            f"the scheduler for this job, {place} 'VOLCANO_SCHEDULER_NAME'",
            "S",
            shown="volcano",
        ),
        _name("job", "n"),
    )


def program(name: str) -> VcctlCommand:
    """Return the program of a name."""
    one = (_namespace("job", "N"), _name("job", "n"))
    if name == "vcctl":
        return _vcctl()
    if name == "vsub":
        return _vsub()
    if name == "vjobs":
        about = "view information of a job with specified name or jobs from the same namespace"
        return _slurm(name, about, "jobs:show_or_list", *_LISTED_JOBS, *one)
    if name == "vqueues":
        about = "view information of a queue with specified name or queues from the same namespace"
        return _slurm(name, about, "queues:show_or_list", _name("queue", "n"))
    verb, subject, action = {
        "vcancel": ("cancel", "a running, pending, or aborted job", "jobs:cancel"),
        "vsuspend": ("suspend", "a running or pending job", "jobs:suspend"),
        "vresume": ("resume", "an aborted job", "jobs:resume"),
    }[name]
    about = f"{verb} {subject} with specified name in default or specified namespace"
    return _slurm(name, about, action, *one)
