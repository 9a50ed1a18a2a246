"""Files that pyarrow writes, asked by DuckDB and by inbloom: both must exclude the same row groups.

usage: parquet.py INBLOOM FOLDER
"""

import json
import subprocess
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

inbloom, folder = sys.argv[1:]
rows = 3000
columns = {
    "id": (pa.array(range(0, 7 * rows, 7), pa.int64()), "BIGINT"),
    "small": (pa.array(range(-rows, rows, 2), pa.int32()), "INTEGER"),
    "large": (pa.array([2**63 + 3 * i for i in range(rows)], pa.uint64()), "UBIGINT"),
    "ratio": (pa.array([i / 7 for i in range(rows)], pa.float64()), "DOUBLE"),
    "name": (pa.array([f"name {i} \u00e4" for i in range(rows)]), "VARCHAR"),
}
paths = [f"{folder}/part-{part}.parquet" for part in range(2)]
for part, path in enumerate(paths):
    table = pa.table({name: values.slice(part * rows // 2, rows // 2) for name, (values, _) in columns.items()})
    options = {name: {"ndv": 500, "fpp": 0.02} for name in columns}
    pq.write_table(table, path, row_group_size=500, bloom_filter_options=options)


def by_inbloom(column, key):
    ran = subprocess.run(
        [inbloom, "check", "--json", "--column", column, "-F", f"{folder}/*.parquet"],
        input=f"{key}\n", capture_output=True, text=True,
    )
    assert ran.returncode in (0, 1) and not ran.stderr, ran
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert (ran.returncode == 0) == bool(found), ran
    return {(it["file"], group) for it in found for group in it["row_groups"]}


database = duckdb.connect()
asked = hits = extra = 0
for column, (values, sql_type) in columns.items():
    present = [values[at].as_py() for at in (0, 499, 500, 1499, 1500, rows - 1)]
    absent = {
        "id": [1, 8, 100_001],
        "small": [1, -1, 2_000_000],
        "large": [1, 2**63 + 1, 2**64 - 1],
        "ratio": [0.5, -1.25, 1e300],
        "name": ["", "nobody", "name 1"],
    }[column]
    for key in present + absent:
        shown = repr(key) if isinstance(key, float) else str(key)
        ours = by_inbloom(column, shown)
        theirs = set()
        for path in paths:
            query = f"SELECT row_group_id, bloom_filter_excludes FROM parquet_bloom_probe(?, ?, ?::{sql_type})"
            for group, excludes in database.execute(query, [path, column, key]).fetchall():
                if not excludes:
                    theirs.add((path, group))
        assert ours == theirs, (column, key, ours, theirs)
        assert ours or key not in present, (column, key)
        asked, hits, extra = asked + 1, hits + len(ours), extra + (key in absent and len(ours))

info = json.loads(subprocess.run([inbloom, "info", "--json", paths[0]], check=True, capture_output=True).stdout)
assert [column["column"] for column in info["columns"]] == list(columns)
for column in info["columns"]:
    for it in column["filters"]:
        assert abs(it["estimated_distinct"] - 500) <= 5 * it["estimated_error"] + 2, (column["column"], it)
print(f"pyarrow {pa.__version__}, DuckDB {duckdb.__version__}: {asked} keys, {hits} row groups, {extra} false positives: the same")
