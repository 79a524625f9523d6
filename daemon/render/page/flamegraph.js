// The flame graph: draws a filled call tree on a canvas, and moves in it by mouse and keyboard.
// It reports what is selected through `onselect`.

const [ROW, NARROWEST] = [19, 0.5]; // pixels
const ROWS_ABOVE_ZOOM = 60; // callers above the zoomed node: a recursion of thousands must not make the canvas endless
const ROWS_BELOW_ZOOM = 400;

/** A tree of calls: `parent`, `key` and `total` by node, node 0 is everything. Its kinds fill `total`. */
class CallTree {
  /** Note the children of each node, once its parents are known. */
  linkChildren() {
    this.size = this.parent.length;
    this.firstChild = new Int32Array(this.size).fill(-1);
    this.nextSibling = new Int32Array(this.size).fill(-1);
    for (let node = this.size - 1; node > 0; node -= 1) {
      this.nextSibling[node] = this.firstChild[this.parent[node]];
      this.firstChild[this.parent[node]] = node;
    }
  }

  /** Return the children that have time, the largest first. */
  childrenOf(node) {
    const found = [];
    for (let child = this.firstChild[node]; child >= 0; child = this.nextSibling[child]) {
      if (this.total[child] > 0) found.push(child);
    }
    return found.sort((a, b) => this.total[b] - this.total[a] || a - b);
  }

  /** Return what tells a node from its siblings, in an address. */
  word(node) { return this.key[node].toString(36); }

  pathTo(node) {
    const path = [];
    for (let at = node; at >= 0; at = this.parent[at]) path.unshift(at);
    return path;
  }

  /** Return the node of a function with the most of something; 0 where no function is such a one. */
  largest(isWanted, sizeOf) {
    let best = 0;
    for (let node = 1; node < this.size; node += 1) {
      if (isWanted(this.functionOf(node)) && (!best || sizeOf(node) > sizeOf(best))) best = node;
    }
    return best;
  }
}

/**
 * Where the nodes of a tree lie, in pixels across and rows down: a node over the whole width, its callers above it.
 * A tree with `starts` has its nodes at their times, and one with `growsUp` has callers that branch above its root.
 */
class Boxes {
  constructor(tree, zoomed, width) {
    this.tree = tree;
    const callers = tree.pathTo(zoomed).slice(0, -1).slice(-ROWS_ABOVE_ZOOM);
    this.all = callers.map((node, row) => ({ node, row, x: 0, width, isCaller: true }));
    const open = tree.total[zoomed] ? [{ node: zoomed, row: callers.length, x: 0, width, isCaller: false }] : [];
    while (open.length) {
      const box = open.pop();
      this.all.push(box);
      if (Math.abs(box.row - callers.length) < ROWS_BELOW_ZOOM) open.push(...this.below(box));
    }
    const first = this.all.reduce((least, box) => Math.min(least, box.row), 0);
    for (const box of this.all) box.row -= first;
    this.rows = 1 + this.all.reduce((most, box) => Math.max(most, box.row), 0);
    this.byNode = new Map(this.all.map((box) => [box.node, box]));
  }

  /** Return the boxes of a node's children that can be seen. */
  below(box) {
    const { tree } = this;
    const scale = box.width / tree.total[box.node];
    const ahead = { up: box.x, down: box.x };
    const found = [];
    for (const node of tree.childrenOf(box.node)) {
      const way = tree.growsUp?.[node] ? "up" : "down";
      const width = tree.total[node] * scale;
      const x = tree.starts ? box.x + (tree.starts[node] - tree.starts[box.node]) * scale : ahead[way];
      if (width >= NARROWEST) found.push({ node, row: box.row + (way === "up" ? -1 : 1), x, width, isCaller: false });
      ahead[way] += width;
    }
    return found;
  }

  /** Return the widest of the boxes above or below another one. */
  beside(box, rows) {
    const near = this.all.filter((each) => each.row === box.row + rows && each.x < box.x + box.width && each.x + each.width > box.x);
    return near.reduce((best, each) => (best && best.width >= each.width ? best : each), undefined);
  }

  at(x, row) { return this.all.find((box) => box.row === row && x >= box.x && x < box.x + Math.max(box.width, 1)); }
}

class FlameGraph {
  constructor(node, tooltip, run, onselect) {
    Object.assign(this, { run, onselect, selected: 0, zoomed: 0, back: [] });
    this.canvas = new Canvas(node, () => this.draw());
    node.addEventListener("click", (event) => {
      const box = this.boxAt(event);
      if (event.detail > 1) this.zoomOut(this.selected);
      else if (box) this.zoomTo(box.node);
    });
    node.addEventListener("wheel", (event) => this.onWheel(event));
    tooltip.follow(node, (event) => {
      const box = this.boxAt(event);
      return box && this.describe(box.node);
    });
    node.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** Show a filled tree. Node numbers mean the same as long as the tree is the same object. */
  show(tree, options) {
    if (tree !== this.tree) Object.assign(this, { tree, zoomed: 0, selected: 0, back: [] });
    this.options = options;
    while (this.zoomed > 0 && !tree.total[this.zoomed]) this.zoomed = tree.parent[this.zoomed];
    this.canvas.redraw();
  }

  draw() {
    if (!this.tree) return;
    this.boxes = new Boxes(this.tree, this.zoomed, this.canvas.width);
    const colors = theme();
    const context = this.canvas.begin(this.boxes.rows * ROW + 1);
    context.textBaseline = "middle";
    for (const box of this.boxes.all) this.drawBox(context, box, colors);
    const selected = this.boxes.byNode.get(this.selected);
    if (selected && (selected.node || this.tree.growsUp)) {
      Object.assign(context, { strokeStyle: colors.ink, lineWidth: 2 });
      context.strokeRect(selected.x + 1, selected.row * ROW + 1, Math.max(selected.width - 3, 1), ROW - 3);
    }
    if (this.tree.total[0]) return;
    Object.assign(context, { font: `12px ${colors.font}`, fillStyle: colors.dim });
    context.fillText("No samples in this selection.", 0, ROW / 2);
  }

  drawBox(context, box, colors) {
    const fill = box.node === 0 ? mix(colors.mixed, colors.paper, 0.5) : this.fillOf(box, colors);
    const isMatch = this.options.matches && this.isMatch(box.node);
    const isFaded = box.isCaller || (this.options.matches && !isMatch);
    const color = isFaded ? mix(fill, colors.paper, 0.35) : fill;
    context.fillStyle = `rgb(${color.join(" ")})`;
    context.fillRect(box.x, box.row * ROW, Math.max(box.width - (box.width > 3 ? 1 : 0), NARROWEST), ROW - 1);
    if (isMatch) {
      context.fillStyle = colors.accent;
      context.fillRect(box.x, box.row * ROW + ROW - 4, Math.max(box.width - 1, 1), 3);
    }
    if (box.width > 16) this.drawLabel(context, box, isFaded ? colors.dim : inkOn(color), colors);
  }

  fillOf(box, colors) {
    this.frameColors ??= new FrameColors(this.run);
    return this.frameColors.ofNode(this.tree, box.node, this.options.coloring, colors);
  }

  drawLabel(context, box, ink, colors) {
    const isOwn = box.node > 0 && !this.run.fileOf(this.tree.functionOf(box.node)).library;
    Object.assign(context, { font: `${isOwn ? "600 " : ""}12px ${colors.font}`, fillStyle: ink });
    const middle = box.row * ROW + ROW / 2;
    const letter = this.letterOf(box.node);
    let x = Math.max(box.x, 0) + 4;
    if (letter && box.width > 30) {
      context.globalAlpha = 0.75;
      context.fillText(letter, x, middle);
      context.globalAlpha = 1;
      x += 15;
    }
    context.fillText(fitText(context, this.label(box.node), box.x + box.width - x - 4), x, middle);
  }

  /** Return the letter of a node's phase where the phase begins: colors alone must not carry it. */
  letterOf(node) {
    const phase = this.tree.phase[node];
    if (phase < 0 || this.options.coloring !== "phase") return "";
    return node === 0 || this.tree.phase[this.tree.parent[node]] !== phase ? this.run.phases[phase].letter : "";
  }

  label(node) {
    if (node === 0) return this.tree.title();
    const line = this.tree.lineOf(node);
    const name = this.run.functionName[this.tree.functionOf(node)];
    return line ? `${name}:${line}` : name;
  }

  isMatch(node) { return node > 0 && this.options.matches[this.tree.functionOf(node)] === 1; }

  select(selected, zoomed = this.zoomed) {
    Object.assign(this, { selected, zoomed });
    this.canvas.redraw();
    this.onselect(selected);
  }

  /** Zoom to a node, unless the page does something else with it. */
  zoomTo(node) {
    if (this.options.onopen) {
      if (node) this.options.onopen(node);
      return;
    }
    if (node !== this.zoomed) this.back.push(this.zoomed);
    this.select(node, node);
  }

  /** Show the whole tree with this node selected. */
  zoomOut(node) {
    this.options.onclose?.();
    this.back = [];
    this.select(node, 0);
  }

  /** Zoom with Ctrl and the wheel by one frame, towards the pointer or back; the wheel alone scrolls. */
  onWheel(event) {
    if ((!event.ctrlKey && !event.metaKey) || this.options.onopen) return;
    event.preventDefault();
    const path = this.tree.pathTo(this.boxAt(event)?.node ?? 0);
    const next = event.deltaY < 0 ? path[path.indexOf(this.zoomed) + 1] : this.tree.parent[this.zoomed];
    if (next >= 0) this.select(next, next);
  }

  /** Move the selection to the largest frame above or below, or to the neighbor in the same row. */
  move(rows, columns) {
    const { boxes } = this;
    const box = boxes.byNode.get(this.selected) ?? boxes.byNode.get(this.zoomed);
    if (!box) return; // nothing is selected: no sample
    const row = boxes.all.filter((each) => each.row === box.row).sort((a, b) => a.x - b.x);
    const next = columns ? row[row.indexOf(box) + columns] : boxes.beside(box, rows);
    if (next) this.select(next.node);
    const selected = boxes.byNode.get(this.selected);
    if (!selected) return;
    const frame = this.canvas.node.parentElement;
    const top = selected.row * ROW;
    if (top < frame.scrollTop) frame.scrollTop = top;
    else if (top + ROW > frame.scrollTop + frame.clientHeight) frame.scrollTop = top + ROW - frame.clientHeight;
  }

  onKey(event) {
    const actions = {
      ArrowUp: () => this.move(-1, 0), ArrowDown: () => this.move(1, 0),
      ArrowLeft: () => this.move(0, -1), ArrowRight: () => this.move(0, 1),
      Enter: () => this.zoomTo(this.selected), Escape: () => this.zoomOut(this.selected), Home: () => this.zoomTo(0),
      s: () => this.selected && this.options.onsandwich?.(this.tree.functionOf(this.selected)),
      Backspace: () => this.zoomed && this.select(this.selected, this.back.pop() ?? 0),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }

  boxAt(event) {
    const place = this.canvas.node.getBoundingClientRect();
    return this.boxes.at(event.clientX - place.left, Math.floor((event.clientY - place.top) / ROW));
  }

  /** Return what a frame is, as elements for the tooltip; their text is what a screen reader says. */
  describe(node) {
    const { tree, run } = this;
    const amount = tree.amount(node).join(" ·");
    if (node === 0) return [element("b", {}, tree.title()), element("div", {}, amount)];
    const functionId = tree.functionOf(node);
    const line = tree.lineOf(node);
    const phase = tree.phase[node] >= 0 ? run.phases[tree.phase[node]].name : "several phases";
    return [
      element("b", {}, run.functionName[functionId]),
      element("div", { class: "dim" }, run.fileOf(functionId).module + (line ? `:${line}` : "")),
      element("div", {}, tree.own ? `${amount} · self ${percent(tree.own[node], tree.whole)}` : amount),
      element("div", { class: "dim" }, phase),
    ];
  }

  /**
   * Return the selected and the zoomed frame as a word for the address, `1.4.2a-ZOOM-SELECTED`; empty at the root.
   * It has the keys of all frames from the root, so that a link means the same in every copy of a page, and two depths.
   */
  address() {
    const { tree, selected, zoomed } = this;
    const path = tree.pathTo(selected).includes(zoomed) ? tree.pathTo(selected) : tree.pathTo(zoomed);
    if (path.length === 1) return "";
    const keys = path.slice(1).map((node) => tree.word(node));
    return `${keys.join(".")}-${path.indexOf(zoomed)}-${path.indexOf(selected)}`;
  }

  /** Go to an address, as far as this tree has its frames; without a way back and without a report. */
  goTo(address) {
    const [, keys, zoom, depth] = /^([\da-z.]+)-(\d+)-(\d+)$/.exec(address) ?? [null, "", 0, 0];
    const path = [0];
    for (const key of keys.split(".").filter(Boolean)) {
      const next = this.tree.childrenOf(path[path.length - 1]).find((child) => this.tree.word(child) === key);
      if (next === undefined) break;
      path.push(next);
    }
    const [zoomed, selected] = [zoom, depth].map((place) => path[Math.min(place, path.length - 1)]);
    Object.assign(this, { zoomed, selected, back: [] });
    this.canvas.redraw();
  }
}
