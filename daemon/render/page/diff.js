// The page of a comparison: the differential flame graph, its panel, and the tables of changes.
// A frame is as wide as in one of the runs, and colored by what it takes more or less; signs say the same as the colors.

const FIRST_TAB = "functions";
const [MORE, LESS] = [[213, 94, 0], [0, 114, 178]];
const FULL_AT = 0.25; // of the base's whole: a change as large as this has the full color

/** The merged call tree of two runs, with the functions in it. `total` is the side that widths are taken from. */
class DiffTree extends CallTree {
  constructor({ tree, unit, least }) {
    super();
    Object.assign(this, { ...tree, unit, least, total: tree.new, parent: parentsOf(tree.up) });
    this.linkChildren();
    this.whole = this.base[0] || this.new[0]; // that changes are parts of
  }

  functionOf(node) { return this.key[node]; }
  fileOf(functionId) { return this.files[this.functionFile[functionId]]; }
  difference(node) { return this.new[node] - this.base[node]; }

  /** Say whether a node changed by more than what is called a change. */
  changed(node) { return Math.abs(this.difference(node)) >= this.least * this.whole; }

  title() { return `all · ${quantity(this.total[0], this.unit)}`; }

  describe(node) {
    const of = this.unit === "share" ? "all time" : "a step";
    return `${change(this.difference(node), this.unit)}, ${signedPercent(this.difference(node) / this.whole)} of ${of}`;
  }
}

class DiffGraph extends FlameGraph {
  fillOf(box, colors) {
    const { tree } = this;
    const neutral = mix(colors.mixed, colors.paper, 0.45);
    if (!tree.changed(box.node)) return neutral;
    const share = Math.min(Math.abs(tree.difference(box.node)) / (FULL_AT * Math.max(tree.base[0], tree.new[0])), 1);
    return mix(tree.difference(box.node) > 0 ? MORE : LESS, neutral, 0.3 + 0.7 * Math.sqrt(share));
  }

  letterOf(node) { return this.tree.changed(node) ? (this.tree.difference(node) > 0 ? "+" : "−") : ""; }

  label(node) {
    return node === 0 ? this.tree.title() : this.run.functionName[this.tree.functionOf(node)];
  }

  describe(node) {
    const { tree } = this;
    return [
      element("b", {}, node ? tree.functionName[tree.functionOf(node)] : "all"),
      element("div", { class: "dim" }, node ? tree.fileOf(tree.functionOf(node)).module : ""),
      element("div", {}, `base ${quantity(tree.base[node], tree.unit)} · new ${quantity(tree.new[node], tree.unit)}`),
      element("div", {}, tree.describe(node)),
    ];
  }
}

class DiffPage extends AddressedPage {
  constructor(extract) {
    super();
    this.tree = new DiffTree(extract);
    this.graph = new DiffGraph(byId("flame"), new Tooltip(byId("tooltip")), this.tree, (node) => {
      this.writeAddress();
      this.showPanel(node);
    });
    this.canvases = [this.graph.canvas];
    const tables = (all, columns, onpick) => Object.entries(all).map(([kind, rows]) => [new Table(byId(`view-${kind}`), kind, columns, onpick), rows]);
    this.tables = [...tables(extract.changes, changeColumns(this.tree), (row) => this.pick(row)), ...tables(extract.readings, readingColumns())];
    this.tabs = new Tabs((tab) => this.change({ tab }));
    for (const name of ["side", "query"]) byId(name).addEventListener("input", (event) => this.change({ [name]: event.target.value }));
    this.readAddress();
  }

  /** Take over an address: the side, the search, the tab and the place in the graph. */
  readAddress() {
    const words = new URLSearchParams(location.hash.replace(/^#/, ""));
    const side = words.get("side") === "base" ? "base" : "new";
    Object.assign(this, { side, query: words.get("query") ?? "", tab: words.get("tab") ?? FIRST_TAB });
    for (const name of ["side", "query"]) byId(name).value = this[name];
    this.update();
    this.graph.goTo(words.get("frame") ?? "");
    this.showPanel(this.graph.selected);
  }

  writeAddress() {
    const opens = { side: "new", query: "", tab: FIRST_TAB, frame: "" };
    const frame = this.graph.address();
    const changed = Object.entries({ ...this, frame }).filter(([name, value]) => name in opens && value !== opens[name]);
    this.setHash(String(new URLSearchParams(changed)));
  }

  change(fields) {
    Object.assign(this, fields);
    this.update();
    this.writeAddress();
  }

  update() {
    this.tree.total = this.tree[this.side];
    this.tab = this.tabs.show(this.tab);
    this.graph.show(this.tree, { coloring: "difference", matches: this.search(this.query, this.tree) });
    for (const [table, rows] of this.tables) table.show(rows, { pattern: this.pattern });
    this.showPanel(this.graph.selected);
  }

  /** Lead from a row to the frame of its function that changed most. */
  pick(row) {
    const name = row.name.split(" → ").pop();
    const { tree } = this;
    const isWanted = (functionId) => tree.functionName[functionId] === name && tree.fileOf(functionId).module === row.module_path;
    const best = tree.largest(isWanted, (node) => Math.abs(tree.difference(node)));
    if (best) this.graph.zoomTo(best);
  }

  showPanel(node) {
    const { tree } = this;
    const dim = (text) => element("p", { class: "dim" }, text);
    const nothing = () => [
      element("h3", {}, "No frame selected"),
      dim("Click a frame, or a row below. Frames are as wide as in the run that is chosen above; orange ones with + take more, blue ones with − less."),
    ];
    const selected = () => [
      element("h3", {}, tree.functionName[tree.functionOf(node)]),
      element("p", { class: "path" }, tree.fileOf(tree.functionOf(node)).path),
      factList([["base", quantity(tree.base[node], tree.unit)], ["new", quantity(tree.new[node], tree.unit)], ["change", tree.describe(node)]]),
      dim("As it is here, in this place of the call tree. How sure a change is stands in the tables: they count each function everywhere."),
    ];
    byId("panel").replaceChildren(...(node ? selected() : nothing()));
    this.speak(node);
  }
}

const isWeak = (row) => !row.is_significant;

/** Return the column of differences; significant ones come above all others, which are below `above`. */
function differenceColumn(above, unitOf) {
  const value = (row) => (row.is_significant ? above : 0) + Math.abs(row.difference);
  return numberColumn("change", value, null, { first: "descending", cell: (row) => change(row.difference, unitOf(row)), isWeak });
}

function changeColumns({ unit, whole }) {
  const number = (title, field, write) => numberColumn(title, field, write, { isWeak });
  return [
    differenceColumn(1e9, () => unit),
    number(unit === "share" ? "of all time" : "of a step", "relative", signedPercent),
    column("95 % bounds", "low", { cell: (row) => `${signedPercent(row.low / whole)} to ${signedPercent(row.high / whole)}`, isWeak }),
    number("base", "base", (value) => quantity(value, unit)),
    number("new", "new", (value) => quantity(value, unit)),
    pickColumn("what", "name", { hint: (row) => row.name }),
    column("where", "module_path", { cell: (row) => (row.line ? `${row.module_path}:${row.line}` : row.module_path), kind: "where" }),
    column("sure", (row) => (row.is_significant ? "yes" : "no"), { cell: (row) => (row.is_significant ? "yes" : "within unrest") }),
  ];
}

/** Return the columns of what is compared beside time: memory, GPUs, operators. */
function readingColumns() {
  const bounds = (row) => {
    if (row.low === null) return row.kind === "operator" ? "not known" : "one value a run";
    return `${change(row.low, row.unit)} to ${change(row.high, row.unit)}`;
  };
  const verdict = (row) => {
    if (row.is_significant) return "yes";
    if (row.low !== null) return "within unrest";
    return row.kind === "operator" ? "too few windows" : "alike";
  };
  return [
    longColumn("what", "name", "name"),
    column("measure", "measure"),
    numberColumn("base", "base", null, { cell: (row) => quantity(row.base, row.unit) }),
    numberColumn("new", "new", null, { cell: (row) => quantity(row.new, row.unit) }),
    differenceColumn(1e18, (row) => row.unit),
    column("95 % bounds", (row) => row.low ?? 0, { cell: bounds, isWeak }),
    column("sure", (row) => (row.is_significant ? "yes" : "no"), { cell: verdict }),
  ];
}

openPacked((extract) => new DiffPage(extract));
