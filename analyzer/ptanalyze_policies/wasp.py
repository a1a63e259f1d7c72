"""wasp: Mitosis's replicas, switched on and off by performance counters (Qu and Yu, WASP, ASPLOS 2024).

After the public port: waspd.c of WASP-daemon (commit e93634b) decides; the kernel of
WASP-linux-7.0.0 (commit d0b9a1a6a) copies and frees, arch/x86/mm/mitosis_lifecycle.c:

off  one copy, where Linux puts it: as captured, or by first touch where the capture has one node
on   pgtable_repl_enable: the main thread copies each table page to every other node, and all CPUs that run
     the process are interrupted three times: to take their node's root (pgtable_repl_force_steering_switch),
     to flush their TLBs (prctl in kernel/sys.c), and for the steering matrix (PR_SET_PGTABLE_REPL_STEERING).
     Then every entry is written to every copy, and each node walks the replica of least latency (waspd.c,
     compute_steering_matrix; of equal ones its own)
off  pgtable_repl_disable: one interrupt to go back to the first root, and the replicas are freed. What stays
     is the first root's own tree, which phase 2 of the copying has linked to the pages on its node

A tracer slows a program down, so that the times of a trace say little about its access rate; at full speed a
program that computes makes some hundred million accesses per second. Without `slowdown` only misses decide.

Not priced: the other threads stand still while the main thread copies (SIGSTOP); each CPU's TLB is empty
after a switch; the daemon's own work, and its cache of free pages (empty unless it is told to fill it).
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from ptanalyze import kernels
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import Machine, Strict
from ptanalyze.kernels import replay
from ptanalyze.policies import contract, static_replicas

# When WASP's daemon switches a process's replicas on and off, from what it counts over a trace. After
# waspd.c of the public port (github.com/julianw1010/WASP-daemon, commit e93634b), function update_and_decide:
# each interval it reads a process's loads and the TLB misses that cause a walk. If more than THR_MAR loads a
# second and more than THR_DTLB walks per load hold at all samples for the hysteresis, replicas are switched
# on; if they have not held for as long, off. Differences: a trace merges loads and stores, so both are
# counted, in both indicators. A sample is taken where a chunk of the trace ends. After the trace the program
# is taken to go on as in its steady part for longer than the hysteresis: what the daemon decides then is the
# state of a further run.

MOST_SAMPLES = 1_000_000


class Thresholds(NamedTuple):
    """
    interval, hysteresis  ns of the trace's clock
    accesses              per ns of it; negative: any rate will do
    misses                per access
    """

    interval: float
    hysteresis: float
    accesses: float
    misses: float


class Decisions(NamedTuple):
    """What the daemon does with S switches in the trace.

    chunk   int64[S]  the first chunk that runs after each; the first switches replicas on, the next off, ...
    steady  whether replicas are there when the steady part goes on
    accesses_per_ns, misses_per_access  of the steady part; the first is NaN where the trace has no times
    """

    chunk: np.ndarray
    steady: bool
    accesses_per_ns: float
    misses_per_access: float


def decisions(program: contract.Scenario, limits: Thresholds) -> Decisions:
    """Decisions over the trace of a program. UsageError for an interval that would be sampled too often."""
    chunks, walks = program.trace.chunks, np.diff(program.stream.offset)
    warm = np.diff(program.steady_stream.offset)
    time, accesses = chunks["time"], chunks["accesses"].astype(np.float64)
    first = program.steady_from
    counted = accesses[first:].sum()
    misses = warm[first:].sum() / counted if counted else 0.0
    span = int(time[-1] - time[first]) if len(time) > first else 0
    rate = accesses[first:-1].sum() / span if span else np.nan  # when the last chunk ended is not known
    steady = bool(misses > limits.misses and not rate <= limits.accesses)
    samples = int(time[-1] / limits.interval) if len(time) and time[0] != time[-1] else 0
    if samples > MOST_SAMPLES:
        raise UsageError(
            f"policy wasp: interval_ms = {limits.interval / 1e6:g}: {samples} samples of this trace, at most "
            f"{MOST_SAMPLES}; give a longer interval"
        )
    above = _above(time, accesses, walks, samples, limits)
    when = (np.array(switches(above, limits)) * limits.interval).astype(np.float64)
    return Decisions(np.searchsorted(time, when), steady, float(rate), float(misses))


def _above(
    time: np.ndarray, accesses: np.ndarray, walks: np.ndarray, samples: int, limits: Thresholds
) -> np.ndarray:
    """bool[samples]: whether each sample is above both thresholds."""
    sample = (time / limits.interval).astype(np.int64)
    done, missed = (np.bincount(sample, of, samples)[:samples] for of in (accesses, walks))
    return (done > limits.accesses * limits.interval) & (missed > limits.misses * done)


def switches(above: np.ndarray, limits: Thresholds) -> list[int]:
    """Numbers of the samples, from 1, after which replicas are switched: on, off, on, ..."""
    found: list[int] = []
    since, before = 0, None
    for sample, now in enumerate(above.tolist(), 1):
        if now is not before:
            since, before = sample, now
        if now is not (len(found) % 2 == 1) and (sample - since) * limits.interval >= limits.hysteresis:
            found.append(sample)
    return found


LOADS = "accesses per second, of all threads, above which replicas may pay (waspd.c, THR_MAR)"
MISSES = "TLB misses per access above which they may (THR_DTLB)"
INTERVAL = "time between two samples (UPDATE_INTERVAL_MS)"
HYSTERESIS = "how long both must be above, or not, before replicas are switched (HYSTERESIS_MS)"
SLOWDOWN = (
    "how many times slower than at full speed the trace was recorded: its times are divided by it; 0: not "
    "known, the access rate is taken to be high enough and the times to be true"
)


class Params(Strict):
    accesses_per_second: Annotated[float, Meta(ge=0, le=1e15, description=LOADS)] = 10e6
    misses_per_access: Annotated[float, Meta(ge=0, le=1, description=MISSES)] = 0.01
    interval_ms: Annotated[float, Meta(ge=1e-6, le=1e9, description=INTERVAL)] = 1000.0
    hysteresis_ms: Annotated[float, Meta(ge=0, le=1e9, description=HYSTERESIS)] = 1000.0
    slowdown: Annotated[float, Meta(ge=0, le=1e6, description=SLOWDOWN)] = 0.0


ON, NEXT, WALK, STEADY = range(4)  # of State.now
NS_PER_MS, NS_PER_S = 1e6, 1e9
ANY_RATE = -1.0  # of Thresholds.accesses
ONCE_ON, TWICE_BY_DAEMON, ONCE_OFF = 1, 2, 1  # interrupts of each CPU


class State(NamedTuple):
    """
    off      static_replicas.State  of the single copy; while replicas are there, homes after they are freed
    many     static_replicas.State  of the replicas
    exists   bool[T]             guest tables that exist; entries  int64[T]: present entries of each
    at       int64[S]            walk before which the replicas are switched: on, off, on, ...
    cpus     int64[S + 1, nodes] other CPUs that run the process then, the last row: after the trace
    main     int16[S + 1]        node of the main thread, which does the work
    now      int64[4]            1: replicas are there; next switch; walks so far; 1: there when it goes on
    seen     float64[2]          accesses per second and misses per access of the steady part
    """

    off: static_replicas.State
    many: static_replicas.State
    exists: np.ndarray
    entries: np.ndarray
    at: np.ndarray
    cpus: np.ndarray
    main: np.ndarray
    now: np.ndarray
    seen: np.ndarray


@contract.hook
def server_of(state, table, node):
    if state.now[ON]:
        return state.many.serve[node]
    return static_replicas.server_of(state.off, table, node)


@contract.hook
def on_walk(state, tables, leaf, row, slot, node, fault, counters):
    while state.now[NEXT] < state.at.size and state.at[state.now[NEXT]] == state.now[WALK]:
        switch(state, state.now[NEXT], counters.events, counters.pages)
        state.now[NEXT] += 1
    state.now[WALK] += 1
    if fault:
        install(state, tables, leaf, node, np.int64(fault) - 1, counters)
    return server_of(state, leaf, node)


@contract.called_hook
def install(state, tables, leaf, node, made, counters):
    if state.now[ON]:
        static_replicas.install(state.many, tables, leaf, node, made, counters)
    else:
        static_replicas.install(state.off, tables, leaf, node, made, counters)
    keep(state, tables, leaf, made, 1)


@contract.called_hook
def keep(state, tables, leaf, made, entries):
    """Remember `made` new tables from `leaf` upwards and `entries` more entries of `leaf`."""
    state.entries[leaf] += entries
    table = np.int64(leaf)
    for _ in range(made):
        state.exists[table] = True
        if state.now[ON]:
            state.off.home[table] = state.off.home[0]
        table = np.int64(tables.parent[table])
        state.entries[table] += 1


@contract.called_hook
def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    kind, changed = steps.kind[step], np.int64(mapped.changed[step])
    if state.now[ON]:
        static_replicas.on_step(state.many, tables, rows, steps, shootdowns, mapped, counters, step)
    else:
        static_replicas.on_step(state.off, tables, rows, steps, shootdowns, mapped, counters, step)
    if changed == 0:
        return
    if kind in (replay.CLEAR, replay.MOVE):
        state.entries[rows.leaf[steps.row[step]]] -= changed
    if kind == replay.MOVE:
        row, _, each = replay.move_target(steps, step)
        keep(state, tables, rows.leaf[row], np.int64(mapped.made[step]), each * changed)
    elif kind == replay.FREE:
        table = steps.number[step]
        state.exists[table] = False
        state.off.home[table] = state.off.again[table]
        state.entries[table] = 0
        if tables.parent[table] >= 0:
            state.entries[tables.parent[table]] -= 1


@contract.kernel
def switch(state, number, events, pages):
    """Switch number `number`: the main thread copies all tables to all nodes, or frees the copies."""
    main, nodes, existing = np.int64(state.main[number]), state.many.copies.size, 0
    root = static_replicas.server_of(state.off, np.int64(0), main)
    kind = kernels.TABLE_FREE if state.now[ON] else kernels.TABLE_NEW
    for table in range(state.exists.size):
        if not state.exists[table]:
            continue
        existing += 1
        home = np.int64(state.off.home[table])
        home = root if home < 0 else home
        for there in range(nodes):
            if there != home:
                events[kind, main, there] += 1
        if not state.now[ON]:
            events[kernels.PTE_COPY, main, home] += (nodes - 1) * state.entries[table]
        state.off.home[table] = root
    for there in range(nodes):
        events[kernels.IPI, main, there] += state.cpus[number, there]
    if state.now[ON]:
        replay.grow(pages, -existing * (nodes - 1))
    else:
        for there in range(nodes):
            events[kernels.IPI, main, there] += TWICE_BY_DAEMON * state.cpus[number, there]
        events[kernels.IPI, main, main] += TWICE_BY_DAEMON  # the daemon interrupts the main thread's CPU too
        replay.grow(pages, existing * (nodes - 1))
    state.now[ON] = 1 - state.now[ON]


def start(scenario: contract.Scenario, params: Params) -> tuple[State, int]:
    done = decisions(scenario, limits_of(params))
    exists = contract.guest_exists(scenario)
    cpus, main = _who(scenario, done)
    state = State(
        _linux(scenario),
        static_replicas.replicas(scenario, np.arange(scenario.nodes), steering(scenario.machine)),
        exists,
        np.where(exists, scenario.entries, 0),
        scenario.stream.offset[done.chunk],
        cpus,
        main,
        np.array([0, 0, 0, done.steady], np.int64),
        np.array([done.accesses_per_ns * NS_PER_S * params.slowdown, done.misses_per_access]),
    )
    return state, int(np.count_nonzero(exists))


def steering(machine: Machine) -> np.ndarray:
    """int16[nodes]: whose replica each node's CPUs walk: that of least latency, under load where the machine
    file knows it; their own unless it is slower."""
    latency = machine.latency_cycles(contended=machine.latency.contended is not None)
    own = np.diagonal(latency)
    return np.where(own <= latency.min(axis=1), np.arange(machine.nodes), latency.argmin(axis=1))


def limits_of(params: Params) -> Thresholds:
    """Thresholds on the clock of the trace."""
    slower = params.slowdown or 1.0
    rate = params.accesses_per_second / NS_PER_S / slower if params.slowdown else ANY_RATE
    interval, hysteresis = (ms * NS_PER_MS * slower for ms in (params.interval_ms, params.hysteresis_ms))
    return Thresholds(interval, hysteresis, rate, params.misses_per_access)


def _linux(scenario: contract.Scenario) -> static_replicas.State:
    """The single copy as `linux` has it, or `first-touch` where the capture has one node."""
    home, again = contract.guest_homes(scenario)
    state: static_replicas.State = static_replicas.one_copy(scenario, home)._replace(again=again)
    state.rule[2] = 0
    return state


def _who(scenario: contract.Scenario, done: Decisions) -> tuple[np.ndarray, np.ndarray]:
    """(State.cpus, State.main) at each switch and after the trace."""
    last = max(len(scenario.trace.chunks) - 1, 0)
    mine = np.flatnonzero(scenario.trace.chunks["thread"] == 0)
    cpus, main = np.zeros((len(done.chunk) + 1, scenario.nodes), np.int64), []
    for row, chunk in enumerate([*done.chunk.tolist(), last]):
        own = mine[max(np.searchsorted(mine, chunk, side="right") - 1, 0)] if len(mine) else min(chunk, last)
        cpu = int(scenario.placement.chunk_cpu[own]) if len(scenario.placement.chunk_cpu) else 0
        others, _ = scenario.history.live.others_then(np.array([chunk]), np.array([cpu]))
        cpus[row, : others.shape[1]] = others[0]
        main.append(int(scenario.placement.cpu_node[cpu]))
    return cpus, np.array(main, np.int16)


def implicit_tables(state: State, scenario: contract.Scenario, tables: np.ndarray) -> int:
    """PolicySide.implicit_tables. What these tables hold is not known: they are copied as if empty."""
    state.exists[tables] = True
    if state.now[ON]:
        state.off.home[tables] = state.off.home[0]
    return len(tables) * (len(state.many.copies) if state.now[ON] else 1)


def between_runs(state: State, events: np.ndarray, pages: np.ndarray) -> None:
    """The daemon's decision once the program has gone on for longer than the hysteresis."""
    if bool(state.now[ON]) != bool(state.now[STEADY]):
        switch(state, np.int64(len(state.at)), events, pages)
    state.now[NEXT] = len(state.at)


def facts(
    state: State, scenario: contract.Scenario, params: Any, pages: np.ndarray
) -> dict[str, float | None]:
    """Facts of the daemon's indicators in the steady part; the rate is None where nothing tells it."""
    rate, misses = state.seen.tolist()
    return {
        "wasp_switches_in_trace": len(state.at),
        "wasp_replicas_in_steady_state": int(state.now[STEADY]),
        "wasp_accesses_per_second": rate if rate > 0 else None,
        "wasp_misses_per_access": misses,
    }


POLICY = contract.Policy(
    "wasp",
    "replicas as mitosis's and the steering matrix, switched on and off by access rate and TLB misses",
    guest=contract.PolicySide(
        contract.GuestHooks(server_of, on_walk, on_step),
        start,
        implicit_tables,
        facts=facts,
        between_runs=between_runs,
    ),
    params=Params,
    source="WASP, ASPLOS '24, as its public port does: waspd.c (e93634b), WASP-linux-7.0.0 (d0b9a1a6a)",
    needs=("trace", "node numbers"),
)
