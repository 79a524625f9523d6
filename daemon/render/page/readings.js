// The tables of a comparison beside time: memory, GPUs, operators. What changed was decided before.

/** Return a number in its unit. */
function reading(value, unit) {
  if (unit === "share") return percent(value, 1);
  if (unit === "s/step") return value < 1 ? `${significant(value * 1e3)} ms` : `${significant(value)} s`;
  return `${value < 0 ? "−" : ""}${bytes(Math.abs(value))}${unit.replace("bytes", "")}`;
}

/** Return a difference with its sign; of shares in points. */
function signedReading(value, unit) {
  const sign = value < 0 ? "−" : "+";
  return unit === "share" ? `${sign}${(100 * Math.abs(value)).toFixed(1)} points` : `${sign}${reading(Math.abs(value), unit)}`;
}

function readingBounds(row) {
  if (row.low === null) return row.kind === "operator" ? "not known" : "one value a run";
  return `${signedReading(row.low, row.unit)} to ${signedReading(row.high, row.unit)}`;
}

function verdictOn(row) {
  if (row.is_significant) return "yes";
  if (row.low !== null) return "within unrest";
  return row.kind === "operator" ? "too few windows to tell" : "alike";
}

function readingColumns() {
  const isWeak = (row) => !row.is_significant;
  return [
    { title: "what", value: (row) => row.name, cell: (row) => row.name, kind: "name", hint: (row) => row.name },
    { title: "measure", value: (row) => row.measure, cell: (row) => row.measure },
    { title: "base", numeric: true, value: (row) => row.base, cell: (row) => reading(row.base, row.unit) },
    { title: "new", numeric: true, value: (row) => row.new, cell: (row) => reading(row.new, row.unit) },
    { title: "change", numeric: true, first: "descending", value: (row) => (row.is_significant ? 1e18 : 0) + Math.abs(row.difference), cell: (row) => signedReading(row.difference, row.unit), isWeak },
    { title: "95 % bounds", value: (row) => row.low ?? 0, cell: readingBounds, isWeak },
    { title: "sure", value: (row) => (row.is_significant ? "yes" : "no"), cell: verdictOn },
  ];
}
