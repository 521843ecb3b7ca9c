"""Writes corpus.txt: small instances with optimal values from CP-SAT.

    python3 corpus.py > corpus.txt        (needs ortools; solved one by one, a few minutes)

Everything is a whole number. A stage's time is its bytes over its rate; every rate divides SCALE, so that times in
1/SCALE seconds are whole numbers as well and the solver's optimum is exact. Only what it proved is written.
"""

import random
import sys

import ortools
from ortools.sat.python import cp_model

SCALE = 720
RATES = [r for r in range(1, 21) if SCALE % r == 0]


class Model:
    """Layers in runs on devices, in any order or in the given one."""

    def __init__(self, layers, devices, given):
        self.model = m = cp_model.CpModel()
        self.layers, self.devices = layers, devices
        n, count = len(devices), len(layers)
        x = self.x = [[m.new_bool_var("") for _ in range(count)] for _ in range(n)]
        self.begins = [[m.new_bool_var("") for _ in range(count)] for _ in range(n)]
        for j in range(count):
            m.add_exactly_one(x[i][j] for i in range(n))
        for i, (room, _) in enumerate(devices):
            m.add(sum(w * x[i][j] for j, w in enumerate(layers)) <= room)
            for j in range(count):
                before = x[i][j - 1] if j else 0
                m.add(x[i][j] - before <= self.begins[i][j])
            m.add_at_most_one(self.begins[i])
        if given:
            for i in range(n):
                for j in range(count - 1):
                    m.add(sum(x[k][j] for k in range(i + 1)) >= sum(x[k][j + 1] for k in range(i + 1)))

    def times(self):
        for i, (_, rate) in enumerate(self.devices):
            yield sum(w * (SCALE // rate) * self.x[i][j] for j, w in enumerate(self.layers))

    def used(self):
        used = []
        for row in self.x:
            some = self.model.new_bool_var("")
            self.model.add_max_equality(some, row)
            used.append(some)
        return used

    def solve(self, seconds):
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return "never"
        return str(round(solver.objective_value)) if status == cp_model.OPTIMAL else None


def min_max(layers, devices, given):
    built = Model(layers, devices, given)
    top = sum(layers) * SCALE
    bound = built.model.new_int_var(0, top, "")
    for time in built.times():
        built.model.add(time <= bound)
    built.model.minimize(bound)
    return built


def fewest(layers, devices):
    built = Model(layers, devices, False)
    built.model.minimize(sum(built.used()))
    return built


def latency(layers, devices, hops):
    """hops[a][b]: whole seconds between two devices, each on a node of its own."""
    built = Model(layers, devices, False)
    m, n, last = built.model, len(devices), len(layers) - 1
    used, arcs, paid = built.used(), [], []
    for i in range(n):
        first, final = m.new_bool_var(""), m.new_bool_var("")
        m.add(first == built.x[i][0])
        m.add(final == built.x[i][last])
        arcs += [(n, i, first), (i, n, final), (i, i, ~used[i])]
        for k in range(n):
            if k != i:
                arc = m.new_bool_var("")
                arcs.append((i, k, arc))
                paid.append(SCALE * hops[i][k] * arc)
                for j in range(last + 1):
                    # Where k begins at j, it follows the device that holds j - 1.
                    before = built.x[i][j - 1] if j else 0
                    m.add(before + built.begins[k][j] + built.x[k][j] - 2 <= arc)
    m.add_circuit(arcs)
    m.minimize(sum(built.times()) + sum(paid))
    return built


def drawn(rng, count, n, slack, most):
    layers = [rng.randint(1, most) for _ in range(count)]
    shares = [rng.randint(3, 20) for _ in range(n)]
    total = sum(layers)
    rooms = [max(1, round(total * slack * s / sum(shares))) for s in shares]
    return layers, [(room, rng.choice(RATES)) for room in rooms]


def line(kind, layers, devices, answer, hops=None):
    parts = [kind, ",".join(map(str, layers)), ",".join(f"{room}/{rate}" for room, rate in devices)]
    if hops:
        parts.append(";".join(",".join(map(str, row)) for row in hops))
    return " ".join(parts + [answer])


def main():
    print(f"# Instances and optimal values, by corpus.py with CP-SAT of OR-tools {ortools.__version__} (all proven).")
    print(f"# kind, bytes of layers, bytes/rate of devices, [hops,] optimum: times in 1/{SCALE} s, or devices, or never.")
    rng = random.Random(20)
    wanted = [("free", 60), ("fit", 50), ("given", 50), ("latency", 40)]
    for kind, number in wanted:
        done = 0
        while done < number:
            hops = None
            if kind == "given":
                n = rng.randint(3, 50) if done % 3 else rng.randint(3, 8)
                layers, devices = drawn(rng, rng.randint(n, max(12, 3 * n // 2)), n, rng.uniform(1.2, 2.0), rng.choice([5, 20]))
                built = min_max(layers, devices, True)
            elif kind == "latency":
                layers, devices = drawn(rng, rng.randint(4, 14), rng.randint(2, 7), rng.uniform(1.1, 2.5), rng.choice([5, 20]))
                n = len(devices)
                hops = [[0] * n for _ in range(n)]
                for a in range(n):
                    for b in range(a):
                        hops[a][b] = hops[b][a] = rng.randint(0, 4)
                built = latency(layers, devices, hops)
            else:
                slack = rng.uniform(1.0, 1.1) if kind == "fit" else rng.uniform(1.1, 1.8)
                layers, devices = drawn(rng, rng.randint(6, 22), rng.randint(2, 8), slack, rng.choice([3, 20, 20]))
                built = fewest(layers, devices) if kind == "fit" else min_max(layers, devices, False)
            answer = built.solve(40)
            if answer:
                print(line(kind, layers, devices, answer, hops), flush=True)
                done += 1
            else:
                print(f"undecided: {kind} {len(layers)} x {len(devices)}", file=sys.stderr)


main()
