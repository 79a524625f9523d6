// Call trees. Their shape is built once a way of looking (by function or line, from the root or from the leaves);
// a selection only fills it with time, so that nodes keep their identity while the range moves.

class Tree {
  constructor(run, byLine, inverted) {
    this.run = run;
    this.byLine = byLine;
    this.inverted = inverted;
    this.parent = [-1]; // node 0 is the root: everything that is selected
    this.key = [-1];
    this.nodeOfStack = new Int32Array(run.stackCount).fill(-1);
    this.known = new Map();
    if (inverted) this.growFromLeaves();
    else this.growFromRoots();
    this.known = null;
    this.linkChildren();
  }

  get size() {
    return this.parent.length;
  }

  functionOf(node) {
    return this.byLine ? this.run.frameFunction[this.key[node]] : this.key[node];
  }

  /** Return the line of a node; 0 where it stands for a whole function. */
  lineOf(node) {
    return this.byLine ? this.run.frameLine[this.key[node]] : 0;
  }

  keyOfStack(stack) {
    const frame = this.run.stackFrame[stack];
    return this.byLine ? frame : this.run.frameFunction[frame];
  }

  child(node, key) {
    const name = node * 2 ** 24 + key;
    let found = this.known.get(name);
    if (found === undefined) {
      found = this.parent.length;
      this.known.set(name, found);
      this.parent.push(node);
      this.key.push(key);
    }
    return found;
  }

  growFromRoots() {
    for (let stack = 0; stack < this.nodeOfStack.length; stack += 1) {
      const caller = this.run.stackParent[stack];
      this.nodeOfStack[stack] = this.child(caller < 0 ? 0 : this.nodeOfStack[caller], this.keyOfStack(stack));
    }
  }

  growFromLeaves() {
    const seen = new Set();
    for (const thread of this.run.threads) thread.stacks.forEach((stack) => seen.add(stack));
    for (const stack of seen) {
      let node = 0;
      for (let at = stack; at >= 0; at = this.run.stackParent[at]) node = this.child(node, this.keyOfStack(at));
      this.nodeOfStack[stack] = node;
    }
  }

  linkChildren() {
    this.firstChild = new Int32Array(this.size).fill(-1);
    this.nextSibling = new Int32Array(this.size).fill(-1);
    for (let node = this.size - 1; node > 0; node -= 1) {
      this.nextSibling[node] = this.firstChild[this.parent[node]];
      this.firstChild[this.parent[node]] = node;
    }
  }

  /** Fill the tree: `total` of time in and below each node, `own` in it alone, `samples`, its dominant `phase` or -1. */
  fill(counts) {
    const phaseCount = this.run.phases.length;
    const byPhase = new Float64Array(this.size * phaseCount);
    this.own = new Float64Array(this.size);
    this.total = new Float64Array(this.size);
    this.samples = new Float64Array(this.size);
    counts.byStack.forEach((time, stack) => {
      if (!time) return;
      const node = this.nodeOfStack[stack];
      this.own[node] += time;
      this.samples[node] += counts.samplesByStack[stack];
      byPhase[node * phaseCount + this.run.stackPhase[stack]] += time;
    });
    // A child always comes after its parent, so one pass backwards sums the tree up.
    for (let node = this.size - 1; node >= 0; node -= 1) {
      this.total[node] += this.own[node];
      if (node === 0) break;
      const parent = this.parent[node];
      this.total[parent] += this.total[node];
      this.samples[parent] += this.samples[node];
      for (let phase = 0; phase < phaseCount; phase += 1) {
        byPhase[parent * phaseCount + phase] += byPhase[node * phaseCount + phase];
      }
    }
    this.phase = Int8Array.from(this.total, (total, node) => dominant(byPhase, node * phaseCount, phaseCount, total));
  }

  /** Return the children that have time, the largest first. */
  childrenOf(node) {
    const found = [];
    for (let child = this.firstChild[node]; child >= 0; child = this.nextSibling[child]) {
      if (this.total[child] > 0) found.push(child);
    }
    return found.sort((a, b) => this.total[b] - this.total[a] || a - b);
  }

  /** Return the nodes from the root down to this one. */
  pathTo(node) {
    const path = [];
    for (let at = node; at >= 0; at = this.parent[at]) path.unshift(at);
    return path;
  }
}

/** Return the phase that nearly all time of a node belongs to; -1 where several share it. */
function dominant(byPhase, offset, phaseCount, total) {
  for (let phase = 0; phase < phaseCount; phase += 1) {
    if (total > 0 && byPhase[offset + phase] >= 0.9 * total) return phase;
  }
  return -1;
}
