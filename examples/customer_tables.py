"""Writes the tables of docs/guides/your-own-tables.md to the working directory: `python examples/customer_tables.py`.

Customers call each other, mostly within a segment. The segment of half of them is known. As in real tables, ages and
plans are missing, calls repeat, some customers call themselves, and some call nobody.
"""

import csv
from pathlib import Path

import numpy as np

SEGMENTS = ("family", "student", "business", "senior")
SHARES = (0.55, 0.28, 0.12, 0.05)
PLANS = ("basic", "plus", "prepaid", "pro")


def main(num_customers: int = 5000, num_new: int = 50, folder: Path = Path()) -> None:
    rng = np.random.default_rng(0)
    total = num_customers + num_new
    segment = rng.choice(len(SEGMENTS), total, p=SHARES)
    age = rng.normal(np.array([40, 23, 45, 70])[segment], 12).clip(18).round()
    spend = rng.lognormal(np.array([3.0, 2.5, 4.0, 2.5])[segment], 0.7).round(2)
    plan = np.where(rng.random(total) < 0.4, segment, rng.integers(0, len(PLANS), total))

    rows = []
    for customer in range(total):
        known_age = "" if rng.random() < 0.1 else int(age[customer])
        known_plan = "" if rng.random() < 0.05 else PLANS[plan[customer]]
        label = SEGMENTS[segment[customer]] if rng.random() < 0.5 else ""
        rows.append([f"C-{customer:05d}", known_age, known_plan, spend[customer], label])
    header = ["id", "age", "plan", "monthly_spend", "segment"]
    write(folder / "customers.csv", header, rows[:num_customers])
    write(folder / "new_customers.csv", header[:4], [row[:4] for row in rows[num_customers:]])

    # the last customers of the first table call nobody
    callers = np.r_[0 : num_customers * 99 // 100, num_customers:total]
    by_segment = [callers[segment[callers] == one] for one in range(len(SEGMENTS))]
    calls = []
    for caller in callers:
        for _ in range(1 + rng.poisson(3)):
            group = by_segment[segment[caller]] if rng.random() < 0.8 else callers
            calls.append([caller, rng.choice(group), 1 + rng.poisson(4)])
    calls += calls[:100]
    calls += [[caller, caller, 1] for caller in callers[:20]]
    old = [call for call in calls if max(call[:2]) < num_customers]
    new = [call for call in calls if max(call[:2]) >= num_customers]
    for name, part in (("calls.csv", old), ("new_calls.csv", new)):
        named = [[f"C-{first:05d}", f"C-{second:05d}", minutes] for first, second, minutes in part]
        write(folder / name, ["caller", "callee", "minutes"], named)


def write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
