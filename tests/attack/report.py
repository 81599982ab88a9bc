"""What an attack showed: a line per round, a table, and the table's place in a page."""

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

BEGIN = "<!-- attack: begin -->"
END = "<!-- attack: end -->"


class Round(NamedTuple):
    """One strike of a fault and what came of it."""

    fault: str
    about: str
    gangs: int
    """Gangs that were submitted around the fault."""
    stuck: tuple[str, ...]
    """Gangs whose jobs did not complete."""
    usual_s: float
    """Median time from a job's creation to nodes for all its pods, before the fault."""
    longest_s: float
    """Longest such time around the fault."""
    limit_s: float
    failure: str
    """What ended or was not ready again, "" if all went on."""
    violations: tuple[str, ...]
    memory_mib: dict[str, int]
    """Resident memory per service at the end of the round, of its largest replica, and of NATS."""

    @property
    def ok(self) -> bool:
        """Whether every promise held."""
        return not (self.stuck or self.failure or self.violations or self.longest_s > self.limit_s)

    def __str__(self) -> str:
        parts = [
            f"{'ok ' if self.ok else 'BAD'} {self.fault:<32} {self.gangs:4d} gangs",
            f"usual {self.usual_s:5.2f} s, longest {self.longest_s:6.2f} s (≤ {self.limit_s:g})",
        ]
        if self.stuck:
            parts.append(f"{len(self.stuck)} stuck: {', '.join(self.stuck[:3])}")
        parts += [text for text in (self.failure, *self.violations[:3]) if text]
        return " | ".join(parts)


def table(rounds: list[Round]) -> str:
    """Return the table, a row per fault."""
    per: dict[str, list[Round]] = defaultdict(list)
    for each in rounds:
        per[each.fault].append(each)
    rows = [
        "| fault | rounds | promises | longest wait for nodes, median (worst) |",
        "|---|---|---|---|",
    ]
    for name in sorted(per):
        done = per[name]
        longest = sorted(each.longest_s for each in done)
        wrong = [each for each in done if each.stuck or each.failure or each.violations]
        outcome = f"{len(wrong)} broken" if wrong else "kept"
        late = sum(each.longest_s > each.limit_s for each in done)
        if late:
            outcome += f", {late} later than {done[0].limit_s:g} s"
        figures = f"{longest[len(longest) // 2]:.2f} s ({longest[-1]:.2f} s)"
        rows.append(f"| {done[0].about} | {len(done)} | {outcome} | {figures} |")
    return "\n".join(rows)


def memory(rounds: list[Round]) -> str:
    """Return a line that compares the memory of the first rounds with that of the last."""
    few = max(1, len(rounds) // 10)

    def most(some: list[Round], name: str) -> int:
        return max(each.memory_mib.get(name, 0) for each in some)

    parts = [
        f"{name} {most(rounds[:few], name)} → {most(rounds[-few:], name)}"
        for name in sorted(rounds[0].memory_mib)
    ]
    return f"Memory in MiB, first to last tenth of the rounds: {', '.join(parts)}."


def page(path: Path, rounds: list[Round], broken: list[str]) -> None:
    """Put the table between the marks of a page."""
    text = path.read_text("utf-8")
    head, _, rest = text.partition(BEGIN)
    _, closed, tail = rest.partition(END)
    assert closed, f"{path} has no place for the table ({BEGIN} … {END})"
    gangs = sum(each.gangs for each in rounds)
    said = (
        f"{len(rounds)} rounds, {gangs} gangs, {len(broken)} promises broken.\n\n{memory(rounds)}"
    )
    path.write_text(f"{head}{BEGIN}\n{said}\n\n{table(rounds)}\n{END}{tail}", "utf-8")
