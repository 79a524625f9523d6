// The tables of a comparison beside time: memory, GPUs, operators. What changed was decided before.

function readingBounds(row) {
  if (row.low === null) return row.kind === "operator" ? "not known" : "one value a run";
  return `${change(row.low, row.unit)} to ${change(row.high, row.unit)}`;
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
    { title: "base", numeric: true, value: (row) => row.base, cell: (row) => quantity(row.base, row.unit) },
    { title: "new", numeric: true, value: (row) => row.new, cell: (row) => quantity(row.new, row.unit) },
    { title: "change", numeric: true, first: "descending", value: (row) => (row.is_significant ? 1e18 : 0) + Math.abs(row.difference), cell: (row) => change(row.difference, row.unit), isWeak },
    { title: "95 % bounds", value: (row) => row.low ?? 0, cell: readingBounds, isWeak },
    { title: "sure", value: (row) => (row.is_significant ? "yes" : "no"), cell: verdictOn },
  ];
}
