"""Calls all of Holistic Trace Analysis on a folder of traces, and prints as JSON what each call came to.

Runs in an interpreter that has HTA: hta_calls.py FOLDER
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings

from hta.trace_analysis import TraceAnalysis

WORDS = {
    "get_gpu_kernels_with_user_annotations": {"rank": 0},
    "get_queue_length_summary_from_time_series": {"queue_length_dict": {}},
    "get_time_spent_blocked_on_full_queue": {"queue_length_dict": {}},
}
"""What calls want to be given."""


def outcome(call, words):
    """Return what a call gives, without its numbers: the kind, and the columns of a table; or its error."""
    try:
        value = call(**words)
    except Exception as error:  # noqa: BLE001  whichever it is, it is compared
        return f"{type(error).__name__}: {error}"
    columns = getattr(value, "columns", None)
    return type(value).__name__ if columns is None else f"{type(value).__name__} of {', '.join(map(str, columns))}"


def main():
    """Read the folder, and call."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    names = [name for name in dir(analysis) if name.startswith(("get_", "generate_"))]
    with tempfile.TemporaryDirectory() as folder:
        words = {**WORDS, "get_frequent_cuda_kernel_sequences": {"operator_name": "aten::conv2d", "output_dir": folder}}
        calls = {name: outcome(getattr(analysis, name), words.get(name, {})) for name in names}
        found = {
            "ranks": sorted(analysis.t.traces),
            "iterations": [int(number) for number in analysis.t.get_iterations()],
            "operators": {rank: len(analysis.t.get_trace(rank)) for rank in analysis.t.traces},
            "calls": {name: said.replace(folder, "FOLDER") for name, said in calls.items()},
        }
    print(json.dumps(found))


main()
