from test_suite import run_suite
import os
def test_rows(card, tmp_path):
    reasons, rows = run_suite(card, tmp_path, "--bandwidth-suite=full", "-k", os.environ["ROWS_K"], DEVICES=2)
    print(reasons, len(rows))
    assert reasons and not any(reasons.values()) and set(rows) == set(reasons)
