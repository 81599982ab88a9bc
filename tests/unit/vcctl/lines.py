"""Lines that vcctl and Slurm's names are tried with.

`WORDS` need no cluster. `READS` are asked of a server that always answers the same (`world.yaml`);
both are the lines of the golden files, where a new one begins without an output. Each of `STORIES`
begins on an API server without jobs, queues and flows, in a copy of the folder `FILES`.
"""

import json
from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).parent / "golden"
PROGRAMS = ("vcctl", "vsub", "vjobs", "vqueues", "vcancel", "vsuspend", "vresume")


def _lines(entries: list[dict]) -> list[list[str]]:
    return [entry["line"] for entry in entries]


WORDS = _lines(json.loads((GOLDEN / "words.json").read_text("utf-8")))
READS = _lines(json.loads((GOLDEN / "reads.json").read_text("utf-8"))["lines"])
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
