"""Numbers of live runs for Prometheus and OpenTelemetry, in a process of their own that only reads run files.

``catalog`` names every metric, the parts (``phases``, ``steps``, ``gpus`` …) tell their values of one run, ``watch``
puts them together, ``runs`` knows which runs there are, ``scrapes`` and ``otlp`` give them out. ``exporter`` starts the
process and is all that a command imports. Nothing here records.
"""
