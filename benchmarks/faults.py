"""What happens when things go wrong: kill, stop, starve and confuse ranks, and print how soon who has heard what.

    python benchmarks/faults.py                       # everything, a few trials each
    python benchmarks/faults.py --only killed --trials 7
    python benchmarks/faults.py --only late --timeouts 0.01 0.1 1 10
    python benchmarks/faults.py --sample 4 --patience 5 --json faults.json

The ranks are forked from this process, on the machine it runs on; nothing is left behind.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable, Iterable
from typing import Any

import fault_beginning
import fault_cycles
import fault_killing
import fault_late
import fault_standing
from fault_jobs import Case

#: What was seen in the trials of a scenario.
Found = list[dict[str, Any]]
#: Fault, goal and figure, for the table.
Rows = list[tuple[str, str, str]]


def main() -> int:
    """Run what was asked for, and print the table; fail if a goal was missed."""
    args = _arguments()
    results: dict[str, list[dict[str, Any]]] = {}
    rows: Rows = []
    good = True
    for name, (cases, judge, trials) in SCENARIOS.items():
        if args.only and name not in args.only:
            continue
        more = {"timeouts_s": args.timeouts} if name == "late" else {}
        chosen = list(cases(args.trials or trials, args.seed, **more))
        if args.sample:
            chosen = random.Random(args.seed).sample(chosen, min(args.sample, len(chosen)))
        results[name] = [one for number, case in enumerate(chosen, 1) for one in _run(name, number, case)]
        told, fine = judge(results[name], args.patience)
        rows += told
        good = good and fine
    print(table(rows))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return 0 if good else 1


def table(rows: Rows) -> str:
    """Return rows of fault, goal and figure as Markdown."""
    lines = [("fault", "goal", "measured"), ("---", "---", "---"), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def judge_killed(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell how soon the survivors of a killed rank have heard, and whether it was the truth."""
    rows: Rows = []
    good = True
    for transport in ("shm", "tcp"):
        some = [one for one in found if one["transport"] == transport]
        if not some:
            continue
        latencies = [one["latency_s"] for one in some]
        raised, named, same = (sum(one[key] for one in some) for key in ("raised", "named", "same"))
        count = len(some)
        good = (
            good
            and raised == named == count
            and _quantile(latencies, 0.99) < 0.25 * patience
            and max(latencies) < 1 * patience
        )
        rows.append(
            (
                f"SIGKILL of a rank in each operation, p = 2, 3, 4, {transport}, {count} trials",
                "all raise and name it; 99 % in 250 ms, all in 1 s",
                f"{raised} of {count} raise, {named} name it, {same} with one text; "
                f"median {_ms(statistics.median(latencies))}, 99 % {_ms(_quantile(latencies, 0.99))}, "
                f"all {_ms(max(latencies))}",
            )
        )
    return rows, good


def judge_shrunk(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell how soon the survivors had gone on."""
    latencies = [one["latency_s"] for one in found]
    right = sum(one["right"] for one in found)
    row = (
        f"kill, shrink, go on, p = 4, {len(found)} cycles",
        "first right all_reduce within 1 s of the death",
        f"{right} of {len(found)} right; median {_ms(statistics.median(latencies))}, all {_ms(max(latencies))}",
    )
    return [row], right == len(found) and max(latencies) < 1 * patience


def judge_swept(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell what killed jobs have left behind."""
    left = [trace for one in found for trace in one["left"]]
    stuck = sum(bool(one["stuck"]) for one in found)
    row = (
        f"SIGKILL of one or all ranks at {len(found)} moments",
        "no file, segment or process left after 2 s",
        f"{len(left)} files and segments, {stuck} processes left",
    )
    return [row], not left and not stuck


def judge_silent(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell how soon a rank that lives but does not answer was given up."""
    rows: Rows = []
    good = True
    for how in ("stopped", "holds the interpreter"):
        some = [one for one in found if one["how"] == how]
        named, latencies = sum(one["named"] and one["same"] for one in some), [one["latency_s"] for one in some]
        limit_s = some[0]["limit_s"]
        good = good and named == len(some) and max(latencies) < 2 * limit_s * patience
        told = f"{named} of {len(some)} named, told apart, with one text; median {_ms(statistics.median(latencies))}, "
        goal = f"named as hung within the limit (set to {limit_s:g} s) and a beat"
        rows.append((f"a rank that is waited for {how}", goal, f"{told}all {_ms(max(latencies))}"))
    return rows, good


def judge_slow(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell whether slowness was taken for a failure."""
    kinds = dict.fromkeys(one["what"] for one in found)
    rows: Rows = []
    for what in kinds:
        some = [one for one in found if one["what"] == what]
        false = sum(not one["fine"] for one in some)
        rows.append((f"{what}, p = {some[0]['size']}", "no false alarm", f"{false} in {len(some)}"))
    return rows, all(one["fine"] for one in found)


def judge_orphaned(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell what has become of groups without their store."""
    ran, refused = (sum(one[key] for one in found) for key in ("ran", "refused"))
    longest = max(one["latency_s"] for one in found)
    row = (
        f"SIGKILL of the store's host, {len(found)} trials",
        "groups run on (10,000 calls), new_group raises DistStoreError within 2 s",
        f"{ran} run on, {refused} raise within {_ms(longest)}",
    )
    return [row], ran == refused == len(found) and longest < 2 * patience


def judge_confused(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell whether all ranks hear the same of calls that do not fit."""
    kinds = len({one["kind"] for one in found})
    same, named = (sum(one[key] for one in found) for key in ("same", "named"))
    longest = max(one["latency_s"] for one in found)
    row = (
        f"{kinds} kinds of calls that do not fit, shm and tcp, {len(found)} trials",
        "the same error on all ranks within 1 s",
        f"{same} the same, {named} name the odd rank; all within {_ms(longest)}",
    )
    return [row], same == named == len(found) and longest < 1 * patience


def judge_late(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell by how much calls outlast their time-outs."""
    rows: Rows = []
    for timeout_s in sorted({one["timeout_s"] for one in found}):
        some = [one for one in found if one["timeout_s"] == timeout_s]
        over = [one["over_s"] for one in some]
        worst = max(some, key=lambda one: one["over_s"])
        told = f"median {_ms(statistics.median(over))}, most {_ms(max(over))} ({worst['call']}, {worst['transport']})"
        calls = len({one["call"] for one in some})
        rows.append((f"time-out of {timeout_s:g} s, {calls} calls, {len(some)} trials", "at most 100 ms over", told))
    return rows, all(-0.005 < one["over_s"] < 0.1 * patience for one in found)


def judge_interrupted(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell how soon Ctrl-C is heard, and how long an end without destroy takes."""
    heard, ended = max(one["latency_s"] for one in found), max(one["exit_s"] for one in found)
    calls = len({one["call"] for one in found})
    return [
        (f"Ctrl-C in {calls} waits, shm and tcp, {len(found)} trials", "control within 200 ms", f"all {_ms(heard)}"),
        ("the process's end after it, without destroy", "at most 2 s", f"all {_ms(ended)}"),
    ], heard < 0.2 * patience and ended < 2 * patience


def judge_cycled(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell what beginning and ending has used up."""
    rows: Rows = []
    for one in found:
        used = f"descriptors {one['descriptors']:+d}, threads {one['threads']:+d}"
        used += f", memory {one['nbytes'] / 2**20:+.1f} MiB"
        each = f"; {1000 * one['took_s'] / one['count']:.0f} ms each"
        rows.append((f"init and destroy {one['count']} times, {one['transport']}", "+0, +0, under +2 MiB", used + each))
    fine = all(one["ended"] and one["descriptors"] == one["threads"] == 0 and one["nbytes"] < 2 << 20 for one in found)
    return rows, fine


def judge_parted(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell how soon both sides of a network that is cut have noticed."""
    if not found:
        return [("two hosts lose sight of each other", "both sides within the limit", "not possible here")], True
    named, longest = sum(one["named"] for one in found), max(one["latency_s"] for one in found)
    limit_s = found[0]["limit_s"]
    row = (
        f"two hosts lose sight of each other, {len(found)} trials",
        f"both sides within the limit (set to {limit_s:g} s) and two beats",
        f"{named} of {len(found)} named on both sides; all {_ms(longest)}",
    )
    return [row], named == len(found) and longest < 2 * limit_s * patience


def judge_begun(found: Found, patience: float) -> tuple[Rows, bool]:
    """Tell whether a group was lost all of whose ranks live, or a rank stood still; most must be hurt in time."""
    rows: Rows = []
    good = True
    for how in dict.fromkeys(one["how"] for one in found):
        some = [one for one in found if one["how"] == how]
        late = len(some) - sum(one["in_time"] for one in some)
        lost = sum(not one["fine"] or (how == "stopped" and not one["whole"]) for one in some)
        stuck = sum(not one["ended"] for one in some)
        good = good and not lost and not stuck and 4 * late <= len(some)
        goal = {"stopped": "the group begins", "interrupted": "the next group begins", "killed": "the others go on"}
        told = f"{lost} lost, {stuck} stand still; {late} were hurt too late"
        rows.append((f"a rank of an encrypted group is {how} as it begins, {len(some)} trials", goal[how], told))
    return rows, good


Judge = Callable[[Found, float], tuple[Rows, bool]]
Cases = Callable[..., Iterable[Case]]

#: How each scenario is run and judged, and how many trials it takes unless told otherwise.
SCENARIOS: dict[str, tuple[Cases, Judge, int]] = {
    "killed": (fault_killing.killed, judge_killed, 1),
    "shrunk": (fault_killing.shrunk, judge_shrunk, 10),
    "swept": (fault_killing.swept, judge_swept, 12),
    "cycled": (fault_cycles.cycled, judge_cycled, 50),
    "parted": (fault_cycles.parted, judge_parted, 1),
    "silent": (fault_standing.silent, judge_silent, 2),
    "slow": (fault_standing.slow, judge_slow, 1),
    "orphaned": (fault_standing.orphaned, judge_orphaned, 2),
    "confused": (fault_standing.confused, judge_confused, 1),
    "late": (fault_late.late, judge_late, 1),
    "interrupted": (fault_standing.interrupted, judge_interrupted, 1),
    "begun": (fault_beginning.begun, judge_begun, 4),
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=SCENARIOS, help="the scenarios to run; all by default")
    parser.add_argument("--trials", type=int, help="trials of each case; a few by default")
    parser.add_argument("--sample", type=int, help="run only so many of a scenario's trials, chosen at random")
    parser.add_argument("--patience", type=float, default=1.0, help="factor for the times allowed, on a busy machine")
    parser.add_argument(
        "--timeouts",
        type=float,
        nargs="*",
        default=fault_late.TIMEOUTS_S,
        metavar="S",
        help="the time-outs of `late`, in seconds; from 5 s on all calls wait at the same time",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random victims and moments")
    parser.add_argument("--json", metavar="FILE", help="write every trial there")
    return parser.parse_args()


def _run(name: str, number: int, case: Case) -> Found:
    print(f"\r{name} {number} ", end="", file=sys.stderr)
    found = case()
    return found if isinstance(found, list) else [found]


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
