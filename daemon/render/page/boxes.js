// Boxes: where the nodes of a filled tree lie, in pixels across and rows down, and which lies beside which.

const ROWS_ABOVE_ZOOM = 60; // callers above the zoomed node: a recursion of thousands must not make the canvas endless
const ROWS_BELOW_ZOOM = 400;
const NARROWEST = 0.5; // pixels

class Boxes {
  /** Lay out a node over the whole width, its callers above it, and all below it that can be seen. */
  constructor(tree, zoomed, width) {
    this.tree = tree;
    const callers = tree.pathTo(zoomed).slice(0, -1).slice(-ROWS_ABOVE_ZOOM);
    this.all = callers.map((node, row) => ({ node, row, x: 0, width, isCaller: true }));
    const open = tree.total[zoomed] ? [{ node: zoomed, row: callers.length, x: 0, width, isCaller: false }] : [];
    while (open.length) {
      const box = open.pop();
      this.all.push(box);
      if (box.row - callers.length < ROWS_BELOW_ZOOM) open.push(...this.childrenOf(box));
    }
    this.rows = 1 + this.all.reduce((most, box) => Math.max(most, box.row), 0);
    this.byNode = new Map(this.all.map((box) => [box.node, box]));
  }

  childrenOf(box) {
    const { tree } = this;
    const scale = box.width / tree.total[box.node];
    const found = [];
    let x = box.x;
    for (const node of tree.childrenOf(box.node)) {
      const width = tree.total[node] * scale;
      if (width >= NARROWEST) found.push({ node, row: box.row + 1, x, width, isCaller: false });
      x += width;
    }
    return found;
  }

  /** Return the box of a node; undefined where it is not in the picture. */
  of(node) {
    return this.byNode.get(node);
  }

  at(x, row) {
    return this.all.find((box) => box.row === row && x >= box.x && x < box.x + Math.max(box.width, 1));
  }

  /** Return the largest node below a box. */
  below(box) {
    return this.tree.childrenOf(box.node).find((node) => this.byNode.has(node));
  }

  /** Return the node so many places to the right of a box, in its row. */
  beside(box, places) {
    const row = this.all.filter((each) => each.row === box.row).sort((a, b) => a.x - b.x);
    return row[row.indexOf(box) + places]?.node;
  }
}
