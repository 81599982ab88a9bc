"""Lines that vcctl and Slurm's names are tried with, and what they find.

`WORDS` need no cluster. `READS` are asked of a server that always answers the same (`world.yaml`);
each of `STORIES` begins on an API server without jobs, queues and flows, in a copy of the folder
`FILES`.
"""

from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("vcctl", "vsub", "vjobs", "vqueues", "vcancel", "vsuspend", "vresume")
GROUPS = {
    "job": ("run", "list", "view", "suspend", "resume", "delete"),
    "queue": ("create", "delete", "operate", "list", "get"),
    "jobflow": ("create", "list", "get", "delete", "describe"),
    "jobtemplate": ("create", "list", "get", "delete", "describe"),
    "pod": ("list",),
}


def helps() -> Iterator[list[str]]:
    """Yield each way to the help of each command."""
    for program in PROGRAMS:
        yield [program, "--help"]
        yield [program, "-h"]
    for group, verbs in GROUPS.items():
        yield ["vcctl", group]
        yield ["vcctl", group, "-h"]
        yield ["vcctl", "help", group]
        for verb in verbs:
            yield ["vcctl", group, verb, "--help"]
            yield ["vcctl", "help", group, verb]


WRONG = [
    ["vcctl"],
    ["vcctl", ""],
    ["vcctl", "help"],
    ["vcctl", "help", "help"],
    ["vcctl", "help", "--help"],
    ["vcctl", "version", "--help"],
    ["vcctl", "jb"],
    ["vcctl", "j"],
    ["vcctl", "q"],
    ["vcctl", "h"],
    ["vcctl", "helpp"],
    ["vcctl", "jobs"],
    ["vcctl", "JOB", "list"],
    ["vcctl", "nope", "--help"],
    ["vcctl", 'a"b\n\x01é'],
    ["vcctl", "completion", "bash"],
    ["vcctl", "--", "job"],
    ["vcctl", "job", "--", "list"],
    ["vcctl", "job", "lst"],
    ["vcctl", "job", "help", "list"],
    ["vcctl", "job", "--nope"],
    ["vcctl", "help", "nope"],
    ["vcctl", "help", "a", "b"],
    ["vcctl", "help", "job", "nope"],
    ["vcctl", "help", "job", "--nope"],
    ["vcctl", "pod", "get", "--help"],
    ["vcctl", "-v"],
    ["vcctl", "-vx"],
    ["vcctl", "-h=maybe"],
    ["vcctl", "--nope"],
    ["vcctl", "--help", "job", "list"],
    ["vcctl", "-h", "job", "list"],
    ["vcctl", "--v=3", "--help", "job", "list"],
    ["vcctl", "-v", "x", "version"],
    ["vcctl", "--v=x", "version"],
    ["vcctl", "--v=", "version"],
    ["vcctl", "--v", "0x1", "version"],
    ["vcctl", "--v", "99999999999", "version"],
    ["vcctl", "--vmodule=a", "version"],
    ["vcctl", "--vmodule=a=b", "version"],
    ["vcctl", "--log-flush-frequency", "x", "version"],
    ["vcctl", "--log-flush-frequency=1", "version"],
    ["vcctl", "--log-flush-frequency=", "version"],
    ["vcctl", "--nope=3", "job", "list"],
    ["vcctl", "job", "list", "-z"],
    ["vcctl", "job", "list", "-hz"],
    ["vcctl", "job", "list", "-hn", "x"],
    ["vcctl", "job", "list", "--nope"],
    ["vcctl", "job", "list", "-n"],
    ["vcctl", "job", "list", "--namespace"],
    ["vcctl", "job", "list", "---n"],
    ["vcctl", "job", "list", "--=x"],
    ["vcctl", "job", "list", "--all-namespaces=maybe"],
    ["vcctl", "job", "list", "--help=no"],
    ["vcctl", "job", "run", "--min", "x"],
    ["vcctl", "job", "run", "-m", "99999999999999999999"],
    ["vcctl", "job", "run", "-m="],
    ["vcctl", "job", "run", "-m", ""],
    ["vcctl", "job", "run", "-m", " 1"],
    ["vcctl", "job", "run", "-m", "08"],
    ["vcctl", "job", "run", "-m", 'a\nb"\\é\x01'],
    ["vcctl", "queue", "create", "-w", "99999999999"],
    ["vcctl", "queue", "operate", "-w", "1.5"],
    *([program, "--version"] for program in PROGRAMS[1:]),
    *([program, "-z"] for program in PROGRAMS[1:]),
    ["vsub", "-m", "x"],
    ["vjobs", "--all-namespaces=2"],
]
WORDS = [*helps(), *WRONG]

READS = [
    ["vcctl", "job", "list"],
    ["vcctl", "job", "list", "--all-namespaces"],
    ["vcctl", "job", "list", "--all_namespaces"],
    ["vcctl", "job", "list", "--all-namespaces=false"],
    ["vcctl", "job", "list", "--all-namespaces", "false"],
    ["vcctl", "job", "list", "-n", "team"],
    ["vcctl", "job", "list", "-nteam"],
    ["vcctl", "job", "list", "-n=team"],
    ["vcctl", "job", "list", "--namespace=team"],
    ["vcctl", "-n", "team", "job", "list"],
    ["vcctl", "job", "-n", "team", "list"],
    ["vcctl", "job", "list", "-n", ""],
    ["vcctl", "job", "list", "-n", "empty"],
    ["vcctl", "job", "list", "extra", "--", "-n"],
    ["vcctl", "job", "list", "-q", "research"],
    ["vcctl", "job", "list", "-q", "none-such"],
    ["vcctl", "job", "list", "-S", "other"],
    ["vcctl", "job", "list", "-q", "research", "-S", "other"],
    ["vcctl", "job", "list", "--selector", "rain"],
    ["vcctl", "job", "view", "-N", "train"],
    ["vcctl", "job", "view", "-N", "bare"],
    ["vcctl", "job", "view", "-N", "none-such"],
    ["vcctl", "job", "view", "-N", "elsewhere", "-n", "team"],
    ["vcctl", "job", "view"],
    ["vjobs"],
    ["vjobs", "--all-namespaces"],
    ["vjobs", "-N", "team"],
    ["vjobs", "-S", "other", "--selector", "long"],
    ["vjobs", "-n", "train"],
    ["vjobs", "-n", "none-such"],
    ["vcctl", "queue", "list"],
    ["vcctl", "queue", "get", "-n", "research"],
    ["vcctl", "queue", "get", "-n", "none-such"],
    ["vcctl", "queue", "get"],
    ["vqueues"],
    ["vqueues", "-n", "research"],
    ["vqueues", "-n", "none-such"],
    ["vcctl", "pod", "list"],
    ["vcctl", "pod", "list", "--all-namespaces"],
    ["vcctl", "pod", "list", "-n", "team"],
    ["vcctl", "pod", "list", "-n", "empty"],
    ["vcctl", "pod", "list", "-q", "research"],
    ["vcctl", "pod", "list", "-q", "none-such", "--all-namespaces"],
    ["vcctl", "jobflow", "list"],
    ["vcctl", "jobflow", "list", "-n", "empty"],
    ["vcctl", "jobflow", "list", "--all-namespaces"],
    ["vcctl", "jobflow", "get", "-N", "flow"],
    ["vcctl", "jobflow", "get", "-N", "none-such"],
    ["vcctl", "jobflow", "get"],
    ["vcctl", "jobflow", "describe"],
    ["vcctl", "jobflow", "describe", "-n", "empty"],
    ["vcctl", "jobflow", "describe", "-N", "flow"],
    ["vcctl", "jobflow", "describe", "-N", "flow", "-o", "json"],
    ["vcctl", "jobflow", "describe", "-o", "json"],
    ["vcctl", "jobflow", "describe", "-o", "xml"],
    ["vcctl", "jobflow", "describe", "-N", "none-such"],
    ["vcctl", "jobtemplate", "list"],
    ["vcctl", "jobtemplate", "list", "-n", "empty"],
    ["vcctl", "jobtemplate", "get", "-N", "template"],
    ["vcctl", "jobtemplate", "get", "-N", "none-such"],
    ["vcctl", "jobtemplate", "get"],
    ["vcctl", "jobtemplate", "describe"],
    ["vcctl", "jobtemplate", "describe", "-o", "json"],
    ["vcctl", "jobtemplate", "describe", "-N", "template", "-o", "xml"],
    ["vcctl", "jobtemplate", "describe", "-N", "none-such"],
    ["vcctl", "jobtemplate", "describe", "-n", "empty"],
]

FILES = Path(__file__).parent / "files"


def story(text: str) -> list[str]:
    """Return the lines of a story, without its empty ones."""
    return [line for line in text.splitlines() if line.strip()]


STORIES = {
    "jobs from flags": story("""
        vcctl job run
        vcctl job run -N a
        vcctl job run -N a
        vcctl job run -N b -n team -m 2 -r 4 -R cpu=1 -L cpu=2,memory=1Gi -i img:3 -S sched
        vcctl job run -N c -R x
        vcctl job run -N c -R cpu=
        vcctl job run -N c -R cpu=x
        vcctl job run -N c -R cpu=1=2
        vcctl job run -N c -L memory=1024Mi,memory=2048Mi
        vcctl job run -N d -R '' -L ''
        vcctl job run -N e -m 0x2 -r 0b11
        vcctl job run -N R_3
        vcctl job run -N f -n nope
        vcctl job run -N g -m -1
        vcctl job suspend -N a
        vcctl job resume -N a
        vcctl job suspend -N b --namespace team
        vcctl job suspend
        vcctl job resume
        vcctl job suspend -N none-such
        vcctl job resume -N none-such
        vcctl job list
        vcctl job delete -N c
        vcctl job delete -N c
        vcctl job delete
        vcctl job list --all-namespaces
    """),
    "jobs from files": story("""
        vcctl job run -f job.yaml
        vcctl job run -f job.yaml
        vcctl job run -f elsewhere.yml
        vcctl job run -f elsewhere.yml -n team -N other-name
        vcctl job run -f none-such.yaml
        vcctl job run -f job.txt
        vcctl job run -f job
        vcctl job run -f bad.yaml
        vcctl job run -f odd.yaml
        vcctl job run -f empty.yaml
    """),
    "Slurm's names": story("""
        vsub
        vsub -n a
        vsub -n a
        vsub -n b -c "sh -c 'echo  a b' x" -N team -m 2 -r 4 -R cpu=1 -L cpu=2 -i img:3 -S sched
        vsub -n c -c "sh -c 'unterminated"
        VOLCANO_SCHEDULER_NAME=vs VOLCANO_DEFAULT_IMAGE=vi vsub -n d
        VOLCANO_DEFAULT_JOB_NAMESPACE=team vsub -n h
        VOLCANO_SCHEDULER_NAME=vs VOLCANO_DEFAULT_IMAGE=vi vsub -n e -S volcano -i busybox
        vsub -n f -R cpu=1,,memory=2Gi
        vsub -n g -R =2
        vsuspend -n a
        vresume -n a
        vsuspend
        vresume
        vcancel
        vsuspend -n none-such
        vresume -n none-such
        vcancel -n none-such
        vjobs -N team
        vcancel -n b -N team
        vcancel -n a
        vjobs
    """),
    "queues": story("""
        vcctl queue list
        vcctl queue create
        vcctl queue create
        vcctl queue create -n ''
        vcctl queue create -n q -w 3 -S Closed
        vcctl queue create -n Q_
        vcctl queue operate
        vcctl queue operate -a open
        vcctl queue operate -n q
        vcctl queue operate -n q -a nope
        vcctl queue operate -n q -a update
        vcctl queue operate -n q -a update -w 7
        vcctl queue operate -n q -w 8
        vcctl queue operate -n q -a update -w -7
        vcctl queue operate -n q -a close
        vcctl queue operate -n q -a open -w 9
        vcctl queue operate -n none-such -a open
        vcctl queue operate -n none-such -a update -w 3
        vcctl queue list
        vcctl queue delete
        vcctl queue delete -n none-such
        vcctl queue delete -n q
        vqueues
    """),
    "flows and templates": story("""
        vcctl jobflow create
        vcctl jobflow create -f none-such
        vcctl jobflow create -f bad.yaml
        vcctl jobflow create -f odd.yaml
        vcctl jobflow create -f empty.yaml
        vcctl jobflow create -f flows.yaml
        vcctl jobflow create -f flows.yaml
        vcctl jobflow create -f broken.yaml
        vcctl jobflow delete
        vcctl jobflow delete -N none-such
        vcctl jobflow delete -N three
        vcctl jobflow delete -f flows.yaml -N ignored
        vcctl jobflow delete -f flows.yaml
        vcctl jobflow delete -f broken.yaml
        vcctl jobflow delete -f none-such
        vcctl jobtemplate create
        vcctl jobtemplate create -f templates.yaml
        vcctl jobtemplate create -f templates.yaml
        vcctl jobtemplate create -f odd.yaml
        vcctl jobtemplate list
        vcctl jobtemplate delete
        vcctl jobtemplate delete -N none-such
        vcctl jobtemplate delete -N t1
        vcctl jobtemplate delete -f templates.yaml
    """),
    "ways to a cluster": story("""
        KUBECONFIG=none-such vcctl queue list
        KUBECONFIG=empty.yaml vjobs
        vcctl queue list -k none-such
        vcctl queue list -k ''
        vcctl queue list -k bad.yaml
        vcctl queue list -k odd.yaml
        vcctl queue list -s http://127.0.0.1:1
        vcctl queue list -s 127.0.0.1:1
        vcctl queue list -s http://127.0.0.1:1/pre/
        vcctl queue create -s http://127.0.0.1:1
        vcctl job delete -N x -s http://127.0.0.1:1
        vcctl job list -q x -s http://127.0.0.1:1 --all-namespaces
        vcctl queue list -k unknown-user
    """),
}
