"""Many runs together: a partitioned data set of Parquet files, and what it answers.

It answers about jobs, nodes and weeks.
"""
