// The page of a comparison: the flame graph, its panel, and the tables of changes.

const FIRST_TAB = "functions";

class DiffPage {
  constructor(extract) {
    this.tree = new DiffTree(extract);
    this.names = new DiffNames(extract);
    this.graph = new DiffGraph(byId("flame"), new Tooltip(byId("tooltip")), this.names, (node) => this.onSelect(node));
    this.tables = Object.fromEntries(
      Object.entries(extract.changes).map(([kind, rows]) => {
        const table = new Table(byId(`view-${kind}`), kind, changeColumns(this.tree), (row) => this.pick(row));
        table.show(rows);
        return [kind, table];
      }),
    );
    for (const [kind, rows] of Object.entries(extract.readings)) new Table(byId(`view-${kind}`), kind, readingColumns()).show(rows);
    this.tabs = new Tabs((view) => this.change(() => Object.assign(this, { tab: view })));
    this.listen();
    this.readAddress();
  }

  /** Take over what an address says: the side, the search, the tab and the place in the graph. */
  readAddress() {
    const words = new URLSearchParams(location.hash.replace(/^#/, ""));
    this.side = words.get("side") === "base" ? "base" : "new";
    this.query = words.get("query") ?? "";
    this.tab = words.get("tab") ?? FIRST_TAB;
    byId("side").value = this.side;
    byId("query").value = this.query;
    this.update();
    this.graph.goTo(readPlace(this.tree, words.get("frame") ?? ""));
    this.showPanel(this.graph.selected);
  }

  writeAddress() {
    const opens = { side: "new", query: "", tab: FIRST_TAB, frame: "" };
    const words = new URLSearchParams();
    for (const [name, value] of Object.entries({ side: this.side, query: this.query, tab: this.tab, frame: placeOf(this.graph) })) {
      if (value !== opens[name]) words.set(name, value);
    }
    history.replaceState(null, "", String(words) ? `#${words}` : location.pathname + location.search);
  }

  change(apply) {
    apply();
    this.update();
    this.writeAddress();
  }

  listen() {
    for (const name of ["side", "query"]) byId(name).addEventListener("input", (event) => this.change(() => Object.assign(this, { [name]: event.target.value })));
    window.addEventListener("hashchange", () => this.readAddress());
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
      event.preventDefault();
      byId("query").focus();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.graph.canvas.redraw());
    window.addEventListener("beforeprint", () => this.setPaper(true));
    window.addEventListener("afterprint", () => this.setPaper(false));
  }

  /** Paper is light, whatever the screen is. */
  setPaper(isPaper) {
    document.documentElement.classList.toggle("paper", isPaper);
    this.graph.canvas.redrawNow();
  }

  update() {
    this.tree.show(this.side);
    this.tab = this.tabs.show(this.tab);
    this.graph.show(this.tree, { coloring: "difference", matches: this.matches() });
    this.showPanel(this.graph.selected);
  }

  matches() {
    const pattern = this.query ? compile(this.query) : null;
    byId("query").setAttribute("aria-invalid", String(Boolean(this.query && !pattern)));
    byId("found").textContent = this.query && !pattern ? "no regular expression" : "";
    if (!pattern) return null;
    return Uint8Array.from(this.names.functionName, (name, at) => (pattern.test(name) || pattern.test(this.names.fileOf(at).module) ? 1 : 0));
  }

  /** Lead from a row to the frame of its function that changed most. */
  pick(row) {
    const name = row.name.split(" → ").pop();
    let best = 0;
    for (let node = 1; node < this.tree.size; node += 1) {
      const functionId = this.tree.functionOf(node);
      const isIt = this.names.functionName[functionId] === name && this.names.fileOf(functionId).module === row.module_path;
      if (isIt && (!best || Math.abs(this.tree.difference(node)) > Math.abs(this.tree.difference(best)))) best = node;
    }
    if (best) this.graph.zoomTo(best);
  }

  onSelect(node) {
    this.writeAddress();
    this.showPanel(node);
  }

  showPanel(node) {
    byId("panel").replaceChildren(...(node ? this.describe(node) : [element("h3", {}, "No frame selected"), hint()]));
    byId("spoken").textContent = this.graph.describe(node).map((part) => part.textContent).join(", ");
  }

  describe(node) {
    const { tree, names } = this;
    const facts = [["base", quantity(tree.base[node], tree.unit)], ["new", quantity(tree.new[node], tree.unit)], ["change", describeChange(tree.difference(node), tree)]];
    return [
      element("h3", {}, names.functionName[tree.functionOf(node)]),
      element("p", { class: "path" }, names.fileOf(tree.functionOf(node)).path),
      element("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, element("b", {}, value))])),
      element("p", { class: "dim" }, "As it is here, in this place of the call tree. How sure a change is stands in the tables: they count each function everywhere."),
    ];
  }
}

function hint() {
  return element("p", { class: "dim" }, "Click a frame, or a row below. Frames are as wide as in the run that is chosen above; orange ones with + take more, blue ones with − less.");
}

function changeColumns(tree) {
  const whole = tree.base[0] || tree.whole;
  const number = (title, value, write, extra = {}) => ({ title, numeric: true, value, cell: (row) => write(value(row)), isWeak: (row) => !row.is_significant, ...extra });
  return [
    number("change", (row) => row.difference, (value) => change(value, tree.unit), { first: "descending", value: (row) => (row.is_significant ? 1e9 : 0) + Math.abs(row.difference), cell: (row) => change(row.difference, tree.unit) }),
    number(tree.unit === "share" ? "of all time" : "of a step", (row) => row.relative, signedPercent),
    { title: "95 % bounds", value: (row) => row.low, cell: (row) => `${signedPercent(row.low / whole)} to ${signedPercent(row.high / whole)}`, isWeak: (row) => !row.is_significant },
    number("base", (row) => row.base, (value) => quantity(value, tree.unit)),
    number("new", (row) => row.new, (value) => quantity(value, tree.unit)),
    { title: "what", value: (row) => row.name, cell: (row) => pickButton(row.name), kind: "name", hint: (row) => row.name },
    { title: "where", value: (row) => row.module_path, cell: (row) => (row.line ? `${row.module_path}:${row.line}` : row.module_path), kind: "where" },
    { title: "sure", value: (row) => (row.is_significant ? "yes" : "no"), cell: (row) => (row.is_significant ? "yes" : "within unrest") },
  ];
}

openPacked((extract) => new DiffPage(extract));
