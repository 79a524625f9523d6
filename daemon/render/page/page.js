// The page: puts the parts together, and shows everything again when the selection changes.

const EVENT_MARGIN_MS = 5_000;

class Page {
  constructor(run) {
    this.run = run;
    this.selection = new Selection(run);
    this.trees = new Map();
    const tooltip = new Tooltip(byId("tooltip"));
    this.timeline = new Timeline(byId("timeline"), tooltip, run, (from, to) => this.change(() => this.selection.setRange(from, to)));
    this.graph = new FlameGraph(byId("flame"), tooltip, run, (node) => this.onSelect(node));
    this.panel = new Panel(byId("panel"), run);
    this.legend = new Legend(byId("legend"), run, (phase) => this.change(() => Object.assign(this.selection, { phase })));
    this.tabs = new Tabs((view) => this.change(() => Object.assign(this.selection, { tab: view })));
    this.makeTables();
    this.makeFilters();
    this.listen();
    this.readAddress();
  }

  makeTables() {
    const pickFunction = (row) => {
      this.graph.selectFunction(row.functionId);
      byId("panel").scrollIntoView({ block: "nearest" });
    };
    const pickProcess = (row) => this.change(() => Object.assign(this.selection, { process: String(row.index), rank: "all", thread: "all" }));
    const pickEvent = (row) => this.change(() => this.selection.setRange(row.at_ms - EVENT_MARGIN_MS, row.at_ms + EVENT_MARGIN_MS));
    const { run } = this;
    this.tables = {
      functions: [new Table(byId("view-functions"), "Hot functions", codeColumns(), pickFunction), () => functionRows(run, this.counts)],
      lines: [new Table(byId("view-lines"), "Hot lines", codeColumns(), pickFunction), () => lineRows(run, this.counts)],
      processes: [new Table(byId("view-processes"), "Processes", processColumns(), pickProcess), () => processRows(run, this.selection)],
      operators: [new Operators(byId("view-operators"), run, (from, to) => this.change(() => this.selection.setRange(from, to))), () => this.selection],
      memory: [new Table(byId("view-memory"), "Memory", memoryColumns(), pickProcess), () => memoryRows(run, this.selection)],
      events: [new Table(byId("view-events"), "Events", eventColumns(run), pickEvent), () => eventRows(run, this.selection)],
    };
  }

  makeFilters() {
    const { run } = this;
    const processes = run.processes.map((_, index) => [String(index), run.processTitle(index)]);
    const roles = [...new Set(run.processes.map((process) => process.role))].filter((role) => role !== "main");
    fillSelect(byId("process"), [["training", "training processes"], ...roles.map((role) => [role, `${role}s`]), ["all", "all processes"], ...processes]);
    const ranks = [...new Set(run.processes.map((process) => process.rank))].filter((rank) => rank !== null).sort((a, b) => a - b);
    fillSelect(byId("rank"), [["all", "all ranks"], ...ranks.map((rank) => [String(rank), `rank ${rank}`])]);
    byId("rank").hidden = !ranks.length;
    const names = [...new Set(run.threads.map((thread) => thread.name))].sort();
    fillSelect(byId("thread"), [["main", "main threads"], ["other", "other threads"], ["all", "all threads"], ...names.map((name) => [`=${name}`, name])]);
    const phases = this.legend.order.filter((phase) => this.legend.everSeen.has(phase));
    fillSelect(byId("phase"), [["", "all phases"], ...phases.map((phase) => [String(phase), `${run.phases[phase].letter} ${run.phases[phase].name}`])]);
    this.onInput("process", (value) => this.selection.setProcess(value));
    this.onInput("phase", (value) => Object.assign(this.selection, { phase: value === "" ? null : Number(value) }));
    for (const name of ["rank", "thread", "by", "coloring"]) {
      this.onInput(name, (value) => {
        this.selection[name] = value;
      });
    }
    this.onInput("query", (value) => {
      this.selection.query = value;
    });
    this.onPress("inverted", "inverted");
    for (const [name, id] of Object.entries(CONDITIONS)) {
      this.onPress(id, name);
      byId(id).hidden = !run.canTell(id);
    }
    byId("reset").addEventListener("click", () => this.change(() => this.selection.setRange(NaN, NaN)));
  }

  onPress(id, name) {
    byId(id).addEventListener("click", () => this.change(() => {
      this.selection[name] = !this.selection[name];
    }));
  }

  onInput(id, apply) {
    byId(id).addEventListener("input", (event) => this.change(() => apply(event.target.value)));
  }

  listen() {
    window.addEventListener("hashchange", () => this.readAddress());
    document.addEventListener("keydown", (event) => {
      const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
      if (event.key === "/" && !isTyping) {
        event.preventDefault();
        byId("query").focus();
      } else if (event.key === "Escape" && event.target.id === "query") {
        this.change(() => {
          this.selection.query = "";
        });
        byId("flame").focus();
      }
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    window.addEventListener("beforeprint", () => this.setPaper(true));
    window.addEventListener("afterprint", () => this.setPaper(false));
  }

  /** Paper is light, whatever the screen is, and nobody can unfold it. */
  setPaper(isPaper) {
    document.documentElement.classList.toggle("paper", isPaper);
    const folded = document.querySelectorAll(isPaper ? "details:not([open])" : "details[data-folded]");
    for (const details of folded) {
      details.open = isPaper;
      details.toggleAttribute("data-folded", isPaper);
    }
    this.timeline.canvas.redrawNow();
    this.graph.canvas.redrawNow();
  }

  redraw() {
    this.timeline.canvas.redraw();
    this.graph.canvas.redraw();
  }

  /** Change the selection, and show what it is then; several changes before the next picture are shown once. */
  change(apply) {
    apply();
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.update();
      this.writeAddress();
    });
  }

  readAddress() {
    this.selection.readHash(location.hash);
    this.update();
    this.graph.goTo(readPlace(this.graph.tree, this.selection.frame));
    this.showPanel();
  }

  writeAddress() {
    this.selection.frame = placeOf(this.graph);
    const hash = this.selection.toHash();
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  }

  update() {
    this.counts = new Counts(this.run, this.selection);
    this.showFilters();
    this.legend.show(this.selection, this.counts);
    this.timeline.show(this.selection);
    this.showGraph();
    this.showTable(this.tabs.show(this.selection.tab));
    document.body.dataset.samples = String(this.counts.samples);
  }

  tree() {
    const name = `${this.selection.by} ${this.selection.inverted}`;
    if (!this.trees.has(name)) this.trees.set(name, new Tree(this.run, this.selection.by === "line", this.selection.inverted));
    return this.trees.get(name);
  }

  showGraph() {
    const tree = this.tree();
    tree.fill(this.counts);
    this.graph.show(tree, { coloring: this.selection.coloring, matches: this.matches() });
    this.showPanel();
  }

  showPanel() {
    const node = this.graph.selected;
    this.panel.show(node > 0 ? this.graph.tree.functionOf(node) : null, this.counts, this.graph.tree, node);
  }

  onSelect(node) {
    this.writeAddress();
    this.showPanel();
    byId("spoken").textContent = this.graph.describe(node).map((part) => part.textContent).join(", ");
  }

  /** Return which functions the search finds, and say on how many samples; null where nothing is searched. */
  matches() {
    const { query } = this.selection;
    const pattern = query ? compile(query) : null;
    byId("query").setAttribute("aria-invalid", String(Boolean(query && !pattern)));
    if (!pattern) {
      byId("found").textContent = query ? "no regular expression" : "";
      return null;
    }
    const found = Uint8Array.from(this.run.functionName, (name, at) => (pattern.test(name) || pattern.test(this.run.fileOf(at).module) ? 1 : 0));
    byId("found").textContent = `${percent(this.counts.matching(found), this.counts.total)} matched`;
    return found;
  }

  showFilters() {
    const { selection } = this;
    for (const name of ["rank", "thread", "by", "coloring"]) byId(name).value = selection[name];
    showOption(byId("process"), selection.process, selection.describeProcess());
    showOption(byId("phase"), String(selection.phase ?? ""), selection.phase === null ? "" : this.run.phases[selection.phase].name);
    if (byId("query").value !== selection.query) byId("query").value = selection.query;
    byId("inverted").setAttribute("aria-pressed", String(selection.inverted));
    for (const [name, id] of Object.entries(CONDITIONS)) byId(id).setAttribute("aria-pressed", String(selection[name]));
    byId("reset").hidden = selection.isWholeRun;
    byId("basis").textContent = `${selection.describe()} · ${counted(this.counts.samples, "sample")}`;
    byId("basis").title = `${this.run.wallClock(selection.fromMs)} – ${this.run.wallClock(selection.toMs)} by the clock`;
  }

  showTable(view) {
    const shown = this.tables[view];
    if (shown) shown[0].show(shown[1]());
  }
}

/** Choose an option; one that an address names but the list does not have is added. */
function showOption(select, value, text) {
  if (![...select.options].some((option) => option.value === value)) select.append(element("option", { value }, text));
  select.value = value;
}

function fillSelect(select, options) {
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
}

openPacked((extract) => new Page(new Run(extract)));
