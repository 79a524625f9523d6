"""The programs under the profiler: ordinary training scripts, run as files; they import nothing of profd."""
