// The merged call tree of two runs. It stands where the report has a run and a filled tree: `total` is the side that
// widths are taken from, and node 0 is everything.

class DiffTree {
  constructor(extract) {
    const { tree } = extract;
    this.unit = extract.unit;
    this.least = extract.least;
    this.parent = Int32Array.from(tree.up, (up, at) => (up ? at - up : -1));
    this.key = Int32Array.from(tree.function);
    this.base = Float64Array.from(tree.base);
    this.new = Float64Array.from(tree.new);
    this.children = Array.from(this.parent, () => []);
    this.parent.forEach((parent, node) => parent >= 0 && this.children[parent].push(node));
    this.whole = Math.max(this.base[0], this.new[0]);
    this.total = this.new;
  }

  get size() {
    return this.parent.length;
  }

  /** Take widths from a side: base or new. */
  show(side) {
    this.total = this[side];
  }

  functionOf(node) {
    return this.key[node];
  }

  difference(node) {
    return this.new[node] - this.base[node];
  }

  /** Say whether a node changed by more than what is called a change. */
  changed(node) {
    return Math.abs(this.difference(node)) >= this.least * (this.base[0] || this.whole);
  }

  childrenOf(node) {
    return this.children[node].filter((child) => this.total[child] > 0).sort((a, b) => this.total[b] - this.total[a] || a - b);
  }

  pathTo(node) {
    const path = [];
    for (let at = node; at >= 0; at = this.parent[at]) path.unshift(at);
    return path;
  }
}

/** What the flame graph asks of a run: names of functions, and where they stand. */
class DiffNames {
  constructor({ tree, phases }) {
    this.phases = phases;
    this.files = tree.files;
    this.functionName = tree.functions.name;
    this.functionFile = tree.functions.file;
  }

  fileOf(functionId) {
    return this.files[this.functionFile[functionId]];
  }
}
