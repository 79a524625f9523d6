// How sure shares are: what each change of a thread from stack to stack leaves open (docs/decisions-measurements.md, 8).
// A change is seen late by the distance to the next sample; the squares of these distances add up to a variance.

/** The slots in which the order of stacks can still be seen: wider ones hold many samples each. */
const SLOT_MS_IN_ORDER = 10;

class Doubt {
  constructor(run) {
    this.run = run;
    this.tellsOrder = run.slotMs <= SLOT_MS_IN_ORDER;
    this.changes = []; // [stack before, stack after, square of ms]
    this.open = 0; // at the end of each thread one change more may be under way
  }

  /** Take in the stacks that a thread went through, and the distance of its samples; `threads` may err together. */
  addThread(stacks, distanceMs, threads) {
    if (!this.tellsOrder || !stacks.length) return;
    const times = new Map();
    for (let at = 1; at < stacks.length; at += 1) {
      if (stacks[at] === stacks[at - 1]) continue;
      const pair = stacks[at - 1] * this.run.stackCount + stacks[at];
      times.set(pair, (times.get(pair) ?? 0) + 1);
    }
    const square = distanceMs ** 2 * threads;
    for (const [pair, count] of times) {
      const after = pair % this.run.stackCount;
      this.changes.push([(pair - after) / this.run.stackCount, after, count * square]);
    }
    this.open += square;
  }

  /** Return the open squares by key, of times with the key at the leaf and of those with it anywhere. */
  byKey(keyCount, keyOf, isSelected) {
    const { stackParent, stackFrame } = this.run;
    const [own, total] = [new Float64Array(keyCount), new Float64Array(keyCount)];
    const mark = new Int32Array(keyCount);
    const visit = (stack, take) => {
      for (let at = stack; at >= 0; at = stackParent[at]) take(keyOf(stackFrame[at]));
    };
    this.changes.forEach(([before, after, square], at) => {
      const [left, entered] = [isSelected(before) ? before : -1, isSelected(after) ? after : -1];
      const leaves = [left, entered].map((stack) => (stack < 0 ? -1 : keyOf(stackFrame[stack])));
      if (leaves[0] !== leaves[1]) leaves.forEach((key) => key >= 0 && (own[key] += square));
      // Marks of this change: seen before it, seen on both sides, and counted.
      const [gone, both, counted] = [3 * at + 1, 3 * at + 2, 3 * at + 3];
      visit(left, (key) => (mark[key] = gone));
      visit(entered, (key) => {
        if (mark[key] === gone) mark[key] = both;
        if (mark[key] === both || mark[key] === counted) return;
        mark[key] = counted;
        total[key] += square;
      });
      visit(left, (key) => {
        if (mark[key] !== gone) return;
        mark[key] = counted;
        total[key] += square;
      });
    });
    return { own, total };
  }
}
