"""What a trace of GPUs lacks: Kineto and CUPTI drop work, or give it times of another clock.

In a whole trace each launch of a kernel has work (docs/windows.md lists the traces that were looked
at). Work without a launch is no loss: some libraries launch by ways that are not traced.
"""

from __future__ import annotations

from profd.daemon.store.records import WindowStream
from profd.daemon.windows.spans import Spans

_LAUNCHES_KERNEL = r"(cuda|hip|cu)(Ext)?(Module)?(Launch\w*Kernel|GraphLaunch)"
# The launches without work are in a row of their own: what has no work has no stream.
_STREAMS = """
    WITH kernel (correlation, start, stream) AS (
        SELECT correlation, start, (
            SELECT stream FROM device WHERE correlation = launch.correlation AND {is_work}
            ORDER BY rowid DESC LIMIT 1
        ) FROM launch WHERE name IN ({launches})
    ), begun (at) AS (SELECT coalesce(min(start), 0) FROM kernel WHERE stream IS NOT NULL)
    SELECT stream, sum(launched), sum(lost), sum(first), sum(unlaunched), sum(misdated) FROM (
        SELECT stream, 1 AS launched, stream IS NULL AS lost,
            stream IS NULL AND start < (SELECT at FROM begun) AS first, 0 AS unlaunched,
            0 AS misdated
        FROM kernel
        UNION ALL SELECT stream, 0, 0, 0, category = 'kernel' AND correlation NOT IN (
            SELECT correlation FROM kernel), misdated FROM device WHERE {is_work}
    ) GROUP BY stream
"""


def streams_of(spans: Spans) -> tuple[WindowStream, ...]:
    """Return by stream what a trace has of launches and of work."""
    launches = spans.named(_LAUNCHES_KERNEL)
    sql = _STREAMS.format(launches=launches, is_work="category <> 'gpu_user_annotation'")
    found = []
    for stream, *counts in spans.select(sql):
        device = ("", "") if stream is None else spans.text(stream)
        gpu, number = (abs(one) if isinstance(one, int) else 0 for one in device)
        found.append(WindowStream(gpu, number, spans.cupti, *counts))
    return tuple(found)
