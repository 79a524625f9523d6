// A band of the timeline: what a thread did, a column of pixels at a time, with letters so that colors alone carry nothing.
// It is made for one width; of a long run that takes longer than to draw it.

const BAND = 46; // pixels
const COLUMN = 3;
const LETTER_STRIDE = 40; // columns from a letter of a phase to the next one
const LETTER_STRIDE_ANEW = 20; // where the phase begins anew
const LETTER_HEIGHT = 11; // pixels

class Band {
  constructor(run, thread, width) {
    this.run = run;
    this.width = width;
    this.columns = phaseColumns(run, thread, Math.floor(width / COLUMN));
    this.letters = lettersOf(this.columns);
  }

  draw(context, left, top, colors) {
    context.fillStyle = colors.faint;
    context.fillRect(left, top, this.width, BAND);
    this.columns.forEach((column, at) => {
      for (const [phase, from, to] of column) {
        context.fillStyle = this.run.phases[phase].color;
        context.fillRect(left + at * COLUMN, top + BAND * (1 - to), COLUMN, BAND * (to - from));
      }
    });
    this.drawLetters(context, left, top, colors);
  }

  drawLetters(context, left, top, colors) {
    context.font = `600 10px ${colors.font}`;
    context.textAlign = "center";
    for (const [phase, at, middle] of this.letters) {
      const { color, letter } = this.run.phases[phase];
      context.fillStyle = inkOn(parseColor(color));
      context.fillText(letter, left + (at + 0.5) * COLUMN, top + BAND * (1 - middle));
    }
    context.textAlign = "left";
  }
}

/** Return so many columns over a run: where each phase lies, from 0 at the bottom to 1, as [phase, from, to]. */
function phaseColumns(run, thread, count) {
  const phases = run.phases.length;
  const sums = new Float64Array(count * phases);
  for (let at = 0; at < thread.slots.length; at += 1) spread(sums, run, thread, at, count);
  return Array.from({ length: count }, (_, column) => heights(sums.subarray(column * phases, (column + 1) * phases)));
}

/** Spread the time of an entry over the columns that it lasted for. */
function spread(sums, run, thread, at, count) {
  const scale = (count * run.slotMs) / run.durationMs;
  const from = Math.max(0, thread.slots[at] * scale);
  const to = Math.min(count, (thread.slots[at] + thread.spans[at]) * scale);
  const density = thread.timesMs[at] / Math.max(to - from, 1e-9);
  const phase = run.stackPhase[thread.stacks[at]];
  for (let column = Math.floor(from); column < to; column += 1) {
    const inside = Math.min(to, column + 1) - Math.max(from, column);
    sums[column * run.phases.length + phase] += density * inside;
  }
}

/** Return the sums of a column, one above the other, as shares of all of them. */
function heights(sums) {
  const whole = sums.reduce((total, sum) => total + sum, 0);
  const found = [];
  let below = 0;
  sums.forEach((sum, phase) => {
    if (sum > 0) found.push([phase, below / whole, (below += sum) / whole]);
  });
  return found;
}

/** Return the letters that columns have room for, not too close to each other: [phase, column, height]. */
function lettersOf(columns) {
  const [drawnAt, seenAt] = [new Map(), new Map()];
  const found = [];
  for (let at = 1; at < columns.length - 1; at += 1) {
    for (const [phase, from, to] of columns[at]) {
      const middle = (from + to) / 2;
      const isRoom = [at - 1, at, at + 1].every((near) => covers(columns[near], phase, middle));
      if (!isRoom) continue;
      const stride = seenAt.get(phase) === at - 1 ? LETTER_STRIDE : LETTER_STRIDE_ANEW;
      seenAt.set(phase, at);
      if (at < (drawnAt.get(phase) ?? -Infinity) + stride) continue;
      drawnAt.set(phase, at);
      found.push([phase, at, middle]);
    }
  }
  return found;
}

/** Say whether a phase has room for a letter at a height of a column. */
function covers(column, phase, middle) {
  const half = LETTER_HEIGHT / 2 / BAND;
  return column.some(([each, from, to]) => each === phase && from <= middle - half && to >= middle + half);
}
