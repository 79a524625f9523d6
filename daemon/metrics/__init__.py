"""Numbers of live runs for Prometheus and OpenTelemetry.

They are served in a process of their own that only reads run files.

``catalog`` names every metric. ``parts`` takes the values of one run from a ``look`` at it.
``runs`` puts them together for all live runs, ``scrapes`` and ``otlp`` give them out. ``exporter``
starts the process and is all that a command imports.
"""
