// Who waits for whom in a hang: a graph, and the same in sentences.

const WAIT_ROW = 44, WAIT_LINE = 12, WAIT_WIDTH = 340, MOST_LINES = 8, MOST_NAMED = 3;
const WAITS_AT = { gil: "the GIL", read: "a pipe", write: "a pipe", child: "its end" };
const WITHOUT_ADDRESSES = (text) => text.replace(/\b0x[0-9a-f]+/g, "");

const listed = (names) => names.slice(0, MOST_NAMED).join(", ") + (names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : "");

/** All that stand in a hang, each with those that it waits for. Ranks of several nodes may have the same PIDs, but not also the same ranks. */
class WaitingCrowd {
  constructor(card) {
    const read = (kind) => [...card.querySelectorAll(`data.${kind}`)].map(({ dataset }) => ({ ...dataset, awaits: dataset.awaits.split(" ").filter(Boolean) }));
    this.all = read("stand").map((stand) => ({ ...stand, isMain: stand.isMain === "True", name: WaitingCrowd.nameOf(stand) }));
    this.mains = this.all.filter((one) => one.isMain && one.role === "main");
    const late = read("late");
    this.operation = late.find((one) => one.operation)?.operation;
    this.late = late.map((one) => this.mains.find((main) => main.pid === one.pid && main.rank === one.rank) ?? WaitingCrowd.stranger(one));
    this.strangers = new Map();
  }

  static nameOf({ who, pid, isMain, thread, id }) {
    const name = `${who} (pid ${pid})`;
    return isMain === "True" ? name : `thread ${thread} (${id}) of ${name}`;
  }

  /** Return a rank of another host, or a process that has ended. */
  static stranger(one) {
    const place = [one.pid === "None" ? "" : `pid ${one.pid}`, one.host ? `on ${one.host}` : ""].filter(Boolean).join(" ");
    return { ...one, name: (one.rank === "None" ? "process" : `rank ${one.rank}`) + (place ? ` (${place})` : "") };
  }

  /** Return those whom one waits for. An id is that of a thread of its own process, or a PID. */
  awaited(one) {
    if (this.late.length && this.mains.includes(one) && !this.late.includes(one)) return this.late;
    return one.awaits.map((id) => {
      const isOwn = (other) => ["gil", "lock"].includes(one.kind) && other.id === id && other.pid === one.pid && other.rank === one.rank;
      const found = this.all.find(isOwn) ?? this.all.find((other) => other.isMain && other.pid === id);
      if (!found && !this.strangers.has(id)) this.strangers.set(id, { name: `pid ${id}`, state: "", awaits: [] });
      return found ?? this.strangers.get(id);
    }).filter((other) => other !== one);
  }

  /** Return the other threads that wait for others in the process of one of whom that is unknown: it may wait for them. */
  besides(one) {
    return this.all.filter((other) => other.pid === one.pid && other.rank === one.rank && other.awaits.length);
  }

  /** Return at what one waits for others. */
  at(one, others) {
    if (others === this.late) return this.operation ?? one.state;
    return WAITS_AT[one.kind] ?? (others.some((other) => other.pid !== one.pid) ? "a queue" : "another thread");
  }

  /** Return those that train and all that they wait or may wait for; equal ones are one, with the rows of those it waits for. */
  rows() {
    const found = [...this.mains], waits = new Map();
    for (const one of found) {  // it grows
      waits.set(one, this.awaited(one));
      const next = waits.get(one).length ? waits.get(one) : this.besides(one);
      found.push(...next.filter((other) => !found.includes(other)));
    }
    const groups = new Map(), rowOf = new Map();
    for (const one of found) {
      const numbers = (several) => several.map((other) => found.indexOf(other)).join();
      const others = waits.get(one), waiting = found.filter((other) => waits.get(other).includes(one));
      if (!others.length && !waiting.length) continue;
      const key = [numbers(waiting), numbers(others), others.length ? "" : WITHOUT_ADDRESSES(one.state)].join(";");
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(one);
      rowOf.set(one, [...groups.keys()].indexOf(key));
    }
    return [...groups.values()].map((group) => {
      const others = waits.get(group[0]), awaits = [...new Set(others.map((other) => rowOf.get(other)))];
      return { name: listed(group.map((one) => one.name)), count: group.length, state: group[0].state, awaits, at: awaits.length ? this.at(group[0], others) : "" };
    });
  }
}

/** Return the rows of a circle in which each waits for the next one; none if there is no circle. */
function circleOf(rows, path = [], at = null) {
  if (at !== null && path.includes(at)) return path.slice(path.indexOf(at));
  for (const next of at === null ? rows.keys() : rows[at].awaits) {
    const found = circleOf(rows, at === null ? [] : [...path, at], next);
    if (found.length) return found;
  }
  return [];
}

const waitSentences = (rows) => {
  const circle = circleOf(rows).map((row) => rows[row].name);
  const said = rows.map(({ name, count, awaits, at, state }) => {
    const whom = awaits.length ? ` ${count > 1 ? "wait" : "waits"} for ${awaits.map((row) => rows[row].name).join(", ")} (${at})` : "";
    return name + whom + (state ? `: ${state}` : "");
  });
  return circle.length ? [...said, `they wait for each other: ${[...circle, circle[0]].join(" → ")}`] : said;
};

/** Return the graph: a row each; each that is waited for has a line of its own to the left, on which all arrows to it go. */
function waitGraph(rows) {
  const goals = [...new Set(rows.flatMap((row) => row.awaits))], lines = Math.min(goals.length, MOST_LINES);
  const left = WAIT_LINE * lines + 14, height = WAIT_ROW * rows.length, letters = Math.floor((WAIT_WIDTH - left - 16) / 7.4);
  const fitting = (text) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
  const boxes = rows.flatMap(({ name, at, state }, row) => {
    const top = WAIT_ROW * row, x = left + 8;
    return [
      element("rect", { x: left, y: top + 2, width: WAIT_WIDTH - 1 - left, height: WAIT_ROW - 4, rx: 4 }),
      element("text", { x, y: top + 18 }, fitting(name)),
      element("text", { class: "by", x, y: top + 34 }, fitting(at ? `waits: ${at}` : state)),
    ];
  });
  const arrows = rows.flatMap(({ awaits }, row) => awaits.flatMap((goal) => {
    const x = left - WAIT_LINE * (goals.indexOf(goal) % lines + 1), end = WAIT_ROW * goal + 30;
    return [
      element("path", { d: `M${left} ${WAIT_ROW * row + 14}H${x}V${end}H${left}` }),
      element("path", { class: "head", d: `M${left} ${end}l-7 -4v8z` }),
    ];
  }));
  const label = "Who waits for whom, as the list below says";
  return element("svg", { class: "waits", width: WAIT_WIDTH, height, viewBox: `0 0 ${WAIT_WIDTH} ${height}`, role: "img", "aria-label": label }, ...boxes, ...arrows);
}

/** Draw into the card of each hang who waits for whom, if anybody is known to wait for another. */
function showWaits() {
  for (const card of document.querySelectorAll(".hangs .card")) {
    const rows = new WaitingCrowd(card).rows();
    if (!rows.length) continue;
    const list = element("ul", {}, ...waitSentences(rows).map((text) => element("li", {}, text)));
    card.querySelector(".where").after(waitGraph(rows), list);
  }
}
