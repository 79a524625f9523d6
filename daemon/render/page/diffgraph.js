// The differential flame graph: a frame is as wide as in one of the runs, and colored by what it takes more or less.
// Signs say the same as the colors, for those who cannot tell them apart.

const MORE = [213, 94, 0];
const LESS = [0, 114, 178];
const FULL_AT = 0.25; // of the base's whole: a change as large as this has the full color

class DiffGraph extends FlameGraph {
  fillOf(box, colors) {
    const { tree } = this;
    const neutral = mix(colors.mixed, colors.paper, 0.45);
    if (!tree.changed(box.node)) return neutral;
    const share = Math.min(Math.abs(tree.difference(box.node)) / (FULL_AT * tree.whole), 1);
    return mix(tree.difference(box.node) > 0 ? MORE : LESS, neutral, 0.3 + 0.7 * Math.sqrt(share));
  }

  letterOf(node) {
    if (!this.tree.changed(node)) return "";
    return this.tree.difference(node) > 0 ? "+" : "−";
  }

  label(node) {
    return node === 0 ? `all · ${quantity(this.tree.total[0], this.tree.unit)}` : this.run.functionName[this.tree.functionOf(node)];
  }

  describe(node) {
    const { tree, run } = this;
    const place = node ? run.fileOf(tree.functionOf(node)).module : "";
    return [
      element("b", {}, node ? run.functionName[tree.functionOf(node)] : "all"),
      element("div", { class: "dim" }, place),
      element("div", {}, `base ${quantity(tree.base[node], tree.unit)} · new ${quantity(tree.new[node], tree.unit)}`),
      element("div", {}, describeChange(tree.difference(node), tree)),
    ];
  }
}

function describeChange(difference, tree) {
  const whole = tree.base[0] || tree.whole;
  const of = tree.unit === "share" ? "all time" : "a step";
  return `${change(difference, tree.unit)}, ${signedPercent(difference / whole)} of ${of}`;
}
