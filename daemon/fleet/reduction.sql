-- What some whole runs come to, small enough to be kept for all of them. Each run is reduced by one query alone, and all
-- that is added up over runs are integers: so it does not matter how runs are put together, nor in which order.
-- $files are those of the table that a query is named after. [$since, $until) is looked at; day 0 is its last one.

-- runs: of those that had one PID after the other, the most GPUs
CREATE TABLE trainer AS
SELECT run, pid, max(name) AS name, max(host) AS host, max(command) AS command, min(started_ns) AS started_ns,
    max(ended_ns) AS ended_ns, sum(lived_ns) AS lived_ns, max(gpus) AS gpus, coalesce(max(world_size), 1) AS world_size
FROM read_parquet($files, hive_partitioning = false)
GROUP BY run, pid;

-- stacks
CREATE TABLE stack AS
SELECT run, stack, phase, function, file, user_function, user_file FROM read_parquet($files, hive_partitioning = false);

-- samples: the one query that reads all rows; what stands in it decides how long a fleet takes
CREATE TABLE spent AS
SELECT run, pid, ($until - 1 - minute_ns) // 86400000000000 AS day, stack,
    sum(time_ns) AS time_ns, sum(gpu_known_ns) AS known_ns, sum(gpu_idle_ns) AS idle_ns
FROM read_parquet($files, hive_partitioning = false)
WHERE is_main AND role = 'main' AND minute_ns < $until AND minute_ns >= $since
GROUP BY ALL;

-- hours: a GPU is lost while it is idle; where nobody read it, while its rank is in a phase that leaves it idle
CREATE TABLE hours AS
SELECT name AS job, run, day, phase, function, file,
    coalesce(user_function, function) AS user_function, coalesce(user_file, file) AS user_file,
    sum(time_ns) AS rank_ns,
    sum(time_ns * gpus) AS gpu_ns,
    sum(idle_ns + unknown_ns) AS lost_ns,
    sum((idle_ns + unknown_ns) * gpus) AS gpu_lost_ns,
    sum(idle_ns * gpus) AS gpu_idle_ns
FROM (
    SELECT *, CASE WHEN list_contains($idling, phase) THEN greatest(time_ns - known_ns, 0) ELSE 0 END AS unknown_ns
    FROM spent JOIN stack USING (run, stack) JOIN trainer USING (run, pid)
)
GROUP BY ALL;

-- steps: in millionths, so that sums are exact
CREATE TABLE step AS
SELECT run, ($until - 1 - at_ns) // 86400000000000 AS day,
    sum(CAST(round(steps * 1e6) AS BIGINT)) AS microsteps, sum(duration_ns) AS duration_ns
FROM read_parquet($files, hive_partitioning = false)
WHERE at_ns < $until AND at_ns >= $since
GROUP BY ALL;

-- findings
CREATE TABLE finding AS
SELECT name AS job, rule, max(label) AS label, count(DISTINCT run) AS runs,
    sum(lost_ns) AS lost_ns, sum(gpu_lost_ns) AS gpu_lost_ns
FROM read_parquet($files, hive_partitioning = false) JOIN (SELECT DISTINCT run, name FROM trainer) USING (run)
WHERE from_ns < $until AND from_ns >= $since
GROUP BY job, rule;
