// The page: puts the parts together, and shows everything again when the selection changes.

const EVENT_MARGIN_MS = 5_000;

class Page {
  constructor(run) {
    this.run = run;
    this.selection = new Selection(run);
    this.trees = new Map();
    this.picked = null;
    const tooltip = new Tooltip(byId("tooltip"));
    this.timeline = new Timeline(byId("timeline"), tooltip, run, (from, to) => this.change(() => this.selection.setRange(from, to)));
    this.graph = new FlameGraph(byId("flame"), tooltip, run, (node) => this.onSelect(node));
    this.panel = new Panel(byId("panel"), run);
    // The legend keeps the order of the whole run, so that nothing jumps while a range is dragged.
    this.usual = new Counts(run, this.selection).byPhase();
    this.phaseOrder = [...run.phases.keys()].sort((a, b) => this.usual[b] - this.usual[a] || a - b);
    this.makeTables();
    this.makeFilters();
    this.makeTabs();
    this.listen();
    this.selection.readHash(location.hash);
    this.update();
  }

  makeTables() {
    const pickFunction = (row) => this.graph.selectFunction(row.functionId);
    const pickProcess = (row) => this.change(() => Object.assign(this.selection, { process: row.index, thread: "all" }));
    const pickEvent = (row) => this.change(() => this.selection.setRange(row.at_ms - EVENT_MARGIN_MS, row.at_ms + EVENT_MARGIN_MS));
    const { run } = this;
    this.tables = {
      functions: [new Table(byId("view-functions"), "Hot functions", codeColumns(), pickFunction), () => functionRows(run, this.counts)],
      lines: [new Table(byId("view-lines"), "Hot lines", codeColumns(), pickFunction), () => lineRows(run, this.counts)],
      processes: [new Table(byId("view-processes"), "Processes", processColumns(), pickProcess), () => processRows(run, this.selection)],
      events: [new Table(byId("view-events"), "Events", eventColumns(run), pickEvent), () => eventRows(run, this.selection)],
    };
  }

  makeFilters() {
    const { run } = this;
    const processes = run.processes.map((_, index) => [String(index), run.processTitle(index)]);
    fillSelect(byId("process"), [["training", "training processes"], ["all", "all processes"], ...processes]);
    const names = [...new Set(run.threads.map((thread) => thread.name))].sort();
    fillSelect(byId("thread"), [["main", "main threads"], ["all", "all threads"], ...names.map((name) => [`=${name}`, name])]);
    this.onInput("process", (value) => this.selection.setProcess(value));
    for (const name of ["thread", "by", "coloring"]) {
      this.onInput(name, (value) => {
        this.selection[name] = value;
      });
    }
    this.onInput("query", (value) => {
      this.selection.query = value;
    });
    byId("inverted").addEventListener("click", () => this.change(() => {
      this.selection.inverted = !this.selection.inverted;
    }));
    byId("reset").addEventListener("click", () => this.change(() => this.selection.setRange(NaN, NaN)));
  }

  onInput(id, apply) {
    byId(id).addEventListener("input", (event) => this.change(() => apply(event.target.value)));
  }

  makeTabs() {
    this.tabs = [...document.querySelectorAll("[role=tab]")];
    for (const [at, tab] of this.tabs.entries()) {
      tab.addEventListener("click", () => this.openTab(tab));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (step) this.openTab(this.tabs[(at + step + this.tabs.length) % this.tabs.length]).focus();
      });
    }
  }

  openTab(tab) {
    this.change(() => {
      this.selection.tab = tab.dataset.view;
    });
    return tab;
  }

  listen() {
    window.addEventListener("hashchange", () => {
      this.selection.readHash(location.hash);
      this.update();
    });
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

  /** Paper is light, whatever the screen is. */
  setPaper(isPaper) {
    document.documentElement.classList.toggle("paper", isPaper);
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
      const hash = this.selection.toHash();
      history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
      this.update();
    });
  }

  update() {
    this.counts = new Counts(this.run, this.selection);
    this.showFilters();
    this.showLegend();
    this.timeline.show(this.selection);
    this.showGraph();
    this.showTab();
    document.body.dataset.samples = String(this.counts.total);
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
    for (const name of ["process", "thread", "by", "coloring"]) byId(name).value = String(selection[name]);
    if (byId("query").value !== selection.query) byId("query").value = selection.query;
    byId("inverted").setAttribute("aria-pressed", String(selection.inverted));
    byId("reset").hidden = selection.isWholeRun;
    byId("basis").textContent = `${selection.describe()} · ${counted(this.counts.total, "sample")}`;
    byId("basis").title = `${this.run.wallClock(selection.fromMs)} – ${this.run.wallClock(selection.toMs)} by the clock`;
  }

  /** Show the phases of the selection with their shares; a click keeps only the samples of one. */
  showLegend() {
    const { run, selection } = this;
    const whole = selection.phase === null ? this.counts : new Counts(run, Object.assign(new Selection(run), selection, { phase: null }));
    const samples = whole.byPhase();
    const shown = this.phaseOrder.filter((phase) => samples[phase] > 0 || this.usual[phase] > 0 || phase === selection.phase);
    byId("legend").replaceChildren(...shown.map((phase) => this.legendEntry(phase, samples[phase], whole.total)));
  }

  legendEntry(phase, samples, whole) {
    const { name, letter, color } = this.run.phases[phase];
    const swatch = element("i", { class: "swatch" }, letter);
    swatch.style.background = color;
    swatch.style.color = inkOn(parseColor(color));
    const isOnly = this.selection.phase === phase;
    const toggle = () => this.change(() => {
      this.selection.phase = isOnly ? null : phase;
    });
    return element("button", { type: "button", "aria-pressed": String(isOnly), title: `only ${name}: ${counted(samples, "sample")}`, onclick: toggle }, swatch, name, element("b", {}, percent(samples, whole)));
  }

  showTab() {
    const views = this.tabs.map((tab) => tab.dataset.view);
    const open = views.includes(this.selection.tab) ? this.selection.tab : views[0];
    for (const tab of this.tabs) {
      const isOpen = tab.dataset.view === open;
      tab.setAttribute("aria-selected", String(isOpen));
      tab.tabIndex = isOpen ? 0 : -1;
      byId(`view-${tab.dataset.view}`).hidden = !isOpen;
    }
    const shown = this.tables[open];
    if (shown) shown[0].show(shown[1]());
  }
}

function byId(id) {
  return document.getElementById(id);
}

function fillSelect(select, options) {
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
}

/** Return a search as a pattern, case ignored; null where it is no regular expression (yet). */
function compile(query) {
  try {
    return new RegExp(query, "i");
  } catch {
    return null;
  }
}

async function openPage() {
  try {
    if (!("DecompressionStream" in window)) throw new Error("this browser is too old: it needs DecompressionStream (2023)");
    window.profd = new Page(await Run.decode(byId("run").textContent));
    document.body.classList.add("ready");
  } catch (error) {
    byId("failure").textContent = `The charts cannot be shown: ${error.message}`;
    byId("failure").hidden = false;
    throw error;
  }
}

openPage();
