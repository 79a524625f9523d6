// The flame graph: draws a filled tree on a canvas, and finds its way in it by mouse and keyboard.
// It reports what is selected through `onselect`; what the samples are is decided elsewhere.

const ROW = 19; // pixels

class FlameGraph {
  constructor(node, tooltip, run, onselect) {
    this.run = run;
    this.tooltip = tooltip;
    this.onselect = onselect;
    this.frameColors = new FrameColors(run);
    this.canvas = new Canvas(node, () => this.draw());
    this.selected = 0;
    this.zoomed = 0;
    this.back = [];
    this.listen(node);
  }

  /** Show a filled tree. Node numbers mean the same as long as the tree is the same object. */
  show(tree, options) {
    if (tree !== this.tree) {
      this.back = [];
      this.zoomed = 0;
      this.selected = 0;
    }
    this.tree = tree;
    this.options = options;
    while (this.zoomed > 0 && !tree.total[this.zoomed]) this.zoomed = tree.parent[this.zoomed];
    this.canvas.redraw();
  }

  // Drawing

  draw() {
    if (!this.tree) return;
    this.boxes = new Boxes(this.tree, this.zoomed, this.canvas.width);
    const colors = theme();
    const context = this.canvas.begin(this.boxes.rows * ROW + 1);
    context.textBaseline = "middle";
    for (const box of this.boxes.all) this.drawBox(context, box, colors);
    this.drawSelected(context, colors);
    if (!this.tree.total[0]) this.drawNothing(context, colors);
  }

  drawNothing(context, colors) {
    context.font = `12px ${colors.font}`;
    context.fillStyle = colors.dim;
    context.fillText("No samples in this selection.", 0, ROW / 2);
  }

  top(box) {
    return box.row * ROW;
  }

  drawBox(context, box, colors) {
    const fill = box.node === 0 ? mix(colors.mixed, colors.paper, 0.5) : this.fillOf(box, colors);
    const isFaded = box.isCaller || (this.options.matches && !this.isMatch(box.node));
    const color = isFaded ? mix(fill, colors.paper, 0.35) : fill;
    context.fillStyle = css(color);
    context.fillRect(box.x, this.top(box), Math.max(box.width - (box.width > 3 ? 1 : 0), NARROWEST), ROW - 1);
    if (this.options.matches && this.isMatch(box.node)) this.drawMatch(context, box, colors);
    if (box.width > 16) this.drawLabel(context, box, isFaded ? colors.dim : inkOn(color), colors);
  }

  fillOf(box, colors) {
    return this.frameColors.ofNode(this.tree, box.node, this.options.coloring, colors);
  }

  drawMatch(context, box, colors) {
    context.fillStyle = colors.accent;
    context.fillRect(box.x, this.top(box) + ROW - 4, Math.max(box.width - 1, 1), 3);
  }

  drawLabel(context, box, ink, colors) {
    const isOwn = box.node > 0 && !this.run.fileOf(this.tree.functionOf(box.node)).library;
    context.font = `${isOwn ? "600 " : ""}12px ${colors.font}`;
    context.fillStyle = ink;
    const middle = this.top(box) + ROW / 2;
    const letter = this.letterOf(box.node);
    let x = Math.max(box.x, 0) + 4;
    if (letter && box.width > 30) {
      context.globalAlpha = 0.75;
      context.fillText(letter, x, middle);
      context.globalAlpha = 1;
      x += 15;
    }
    const text = fitText(context, this.label(box.node), box.x + box.width - x - 4);
    context.fillText(text, x, middle);
  }

  /** Return the letter of a node's phase where the phase begins: colors alone must not carry it. */
  letterOf(node) {
    const phase = this.tree.phase[node];
    if (phase < 0 || this.options.coloring !== "phase") return "";
    return node === 0 || this.tree.phase[this.tree.parent[node]] !== phase ? this.run.phases[phase].letter : "";
  }

  drawSelected(context, colors) {
    const box = this.boxes.of(this.selected);
    if (!box || box.node === 0) return;
    context.strokeStyle = colors.ink;
    context.lineWidth = 2;
    context.strokeRect(box.x + 1, this.top(box) + 1, Math.max(box.width - 3, 1), ROW - 3);
  }

  label(node) {
    if (node === 0) return `all · ${counted(this.tree.samples[0], "sample")}`;
    const line = this.tree.lineOf(node);
    const name = this.run.functionName[this.tree.functionOf(node)];
    return line ? `${name}:${line}` : name;
  }

  isMatch(node) {
    return node > 0 && this.options.matches[this.tree.functionOf(node)] === 1;
  }

  // Moving

  select(node) {
    this.selected = node;
    this.canvas.redraw();
    this.onselect(node);
  }

  zoomTo(node) {
    if (node !== this.zoomed) {
      this.back.push(this.zoomed);
      this.zoomed = node;
    }
    this.select(node);
  }

  zoomBack() {
    if (!this.zoomed) return;
    this.zoomed = this.back.pop() ?? 0;
    this.select(this.selected);
  }

  zoomOut() {
    this.zoomed = 0;
    this.back = [];
    this.select(this.selected);
  }

  /** Go to a place without a way back, and without a report: it is known to whoever asks for it. */
  goTo({ zoomed, selected }) {
    Object.assign(this, { zoomed, selected, back: [] });
    this.canvas.redraw();
  }

  /** Select the largest node of a function, so that a row of a table leads into the graph. */
  selectFunction(functionId) {
    let best = 0;
    for (let node = 1; node < this.tree.size; node += 1) {
      const isIt = this.tree.functionOf(node) === functionId;
      if (isIt && (best === 0 || this.tree.total[node] > this.tree.total[best])) best = node;
    }
    this.zoomed = 0;
    this.back = [];
    this.select(best);
  }

  /** Move the selection: to the caller, the largest callee, or the neighbor in the same row. */
  move(rows, columns) {
    const { boxes, tree } = this;
    const box = boxes.of(this.selected) ?? boxes.of(this.zoomed);
    const next = columns ? boxes.beside(box, columns) : rows < 0 ? tree.parent[box.node] : boxes.below(box);
    if (next !== undefined && next >= 0) this.select(next);
    this.scrollToSelected();
  }

  scrollToSelected() {
    const box = this.boxes.of(this.selected);
    const frame = this.canvas.node.parentElement;
    if (!box) return;
    const top = this.top(box);
    if (top < frame.scrollTop) frame.scrollTop = top;
    else if (top + ROW > frame.scrollTop + frame.clientHeight) frame.scrollTop = top + ROW - frame.clientHeight;
  }

  // Input

  listen(node) {
    node.addEventListener("click", (event) => {
      const box = this.boxAt(event);
      if (box) this.zoomTo(box.node);
    });
    node.addEventListener("mousemove", (event) => this.pointAt(event));
    node.addEventListener("mouseleave", () => this.tooltip.hide());
    node.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    const actions = {
      ArrowUp: () => this.move(-1, 0),
      ArrowDown: () => this.move(1, 0),
      ArrowLeft: () => this.move(0, -1),
      ArrowRight: () => this.move(0, 1),
      Enter: () => this.zoomTo(this.selected),
      Backspace: () => this.zoomBack(),
      Escape: () => this.zoomOut(),
      Home: () => this.zoomTo(0),
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

  pointAt(event) {
    const box = this.boxAt(event);
    if (box) this.tooltip.show(event, this.describe(box.node));
    else this.tooltip.hide();
  }

  /** Return what a frame is, as elements for the tooltip; their text is what a screen reader says. */
  describe(node) {
    const { tree, run } = this;
    const whole = tree.total[0];
    const share = `${percent(tree.total[node], whole)} · ${counted(tree.samples[node], "sample")}`;
    if (node === 0) return [element("b", {}, "all"), element("div", {}, share)];
    const functionId = tree.functionOf(node);
    const line = tree.lineOf(node);
    const phase = tree.phase[node] >= 0 ? run.phases[tree.phase[node]].name : "several phases";
    return [
      element("b", {}, run.functionName[functionId]),
      element("div", { class: "dim" }, run.fileOf(functionId).module + (line ? `:${line}` : "")),
      element("div", {}, `${share} · self ${percent(tree.own[node], whole)}`),
      element("div", { class: "dim" }, phase),
    ];
  }
}
