"""profd: a sampling-profiler daemon for Python training runs that stays outside of the run.

    cli  ->  tui  ->  daemon/  supervise -> collect -> store
                               render -> analyze -> store.reader

Collectors put what they saw on a bounded queue, one writer thread puts it into the run file, and
everything that shows something (dashboard, report, export, summary) reads that file through one
reader.
"""
