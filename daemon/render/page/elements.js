// What every page is made of: elements, the tooltip, the tabs, and a page that lives in the address.
// Data only ever becomes text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

/** Return an element with properties (`class`, `title`, `on…`, or attributes) and children (strings become text). */
function element(tag, properties = {}, ...children) {
  const made = ["svg", "polyline", "rect", "text", "path"].includes(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Return facts as a list of names and values; each is [name, value, text behind it]. */
function factList(facts) {
  const row = ([name, value, rest]) => [element("dt", {}, name), element("dd", {}, element("b", {}, value), rest)];
  return element("dl", { class: "facts" }, ...facts.flatMap(row));
}

const fillSelect = (select, options) =>
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));

/** A few lines beside the pointer, kept inside the window. */
class Tooltip {
  constructor(node) { this.node = node; }

  /** Show lines beside the pointer; null is nothing. */
  show(event, lines) {
    this.node.replaceChildren(...(lines ?? []));
    this.node.hidden = !lines;
    const { offsetWidth, offsetHeight, style } = this.node;
    const isLow = event.clientY + offsetHeight + 24 > window.innerHeight;
    style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - offsetWidth - 8))}px`;
    style.top = `${isLow ? event.clientY - offsetHeight - 10 : event.clientY + 16}px`;
  }

  /** Show what an element says of the place under the pointer. */
  follow(element, describe) {
    element.addEventListener("mousemove", (event) => this.show(event, describe(event)));
    element.addEventListener("mouseleave", (event) => this.show(event, null));
  }
}

/** The tabs below the flame graph. The page knows which one is open; they report what is picked by `onopen`. */
class Tabs {
  constructor(onopen) {
    this.tabs = [...document.querySelectorAll("[role=tab]")];
    for (const [at, tab] of this.tabs.entries()) {
      tab.addEventListener("click", () => onopen(tab.dataset.view));
      tab.addEventListener("keydown", (event) => {
        const step = Number(event.key === "ArrowRight") - Number(event.key === "ArrowLeft");
        if (!step) return;
        const next = this.tabs[(at + step + this.tabs.length) % this.tabs.length];
        onopen(next.dataset.view);
        next.focus();
      });
    }
  }

  /** Open a view, the first one where none has this name, and return the name of the open one. */
  show(view) {
    const open = this.tabs.find((tab) => tab.dataset.view === view) ?? this.tabs[0];
    for (const tab of this.tabs) {
      tab.setAttribute("aria-selected", String(tab === open));
      tab.tabIndex = tab === open ? 0 : -1;
      byId(`view-${tab.dataset.view}`).hidden = tab !== open;
    }
    return open.dataset.view;
  }
}

/** A page with a flame graph, whose state is its address. It has a `graph`, `canvases`, and `readAddress()`. */
class AddressedPage {
  constructor() {
    window.addEventListener("hashchange", () => this.readAddress());
    document.addEventListener("keydown", (event) => {
      const actions = { "/": () => byId("query").focus(), Escape: () => this.goBack() };
      const isTaken = event.defaultPrevented || ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
      if (isTaken || !actions[event.key]) return;
      event.preventDefault();
      actions[event.key]();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.canvases.forEach((canvas) => canvas.redraw()));
    window.addEventListener("beforeprint", () => this.setPaper(true));
    window.addEventListener("afterprint", () => this.setPaper(false));
  }

  /** Show more again. */
  goBack() { this.graph.zoomOut(this.graph.selected); }

  /** Paper is light, whatever the screen is, and nobody can unfold it. */
  setPaper(isPaper) {
    document.documentElement.classList.toggle("paper", isPaper);
    for (const details of document.querySelectorAll(isPaper ? "details:not([open])" : "details[data-folded]")) {
      details.open = isPaper;
      details.toggleAttribute("data-folded", isPaper);
    }
    this.canvases.forEach((canvas) => canvas.redrawNow());
  }

  setHash(hash) { history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search); }

  /** Return which functions of a run a search finds; `pattern` is its regular expression then. Both are null without one. */
  search(query, run) {
    this.pattern = null;
    try {
      this.pattern = query ? new RegExp(query, "i") : null;
    } catch {} // not yet one
    const { pattern } = this;
    const isWrong = Boolean(query && !pattern);
    byId("query").setAttribute("aria-invalid", String(isWrong));
    byId("found").textContent = isWrong ? "no regular expression" : "";
    return pattern && Uint8Array.from(run.functionName, (name, at) => (pattern.test(name) || pattern.test(run.fileOf(at).module) ? 1 : 0));
  }

  /** Have a screen reader say what a frame is. */
  speak(node) { byId("spoken").textContent = this.graph.describe(node).map((part) => part.textContent).join(", "); }
}

/** Return where the parent of each node lies, by how far back that is; -1 at a root. */
const parentsOf = (up) => Int32Array.from(up, (back, at) => (back ? at - back : -1));

const NUMBERS = { Uint8Array, Uint16Array, Uint32Array, Int32Array, Float64Array };

/**
 * Decode what stands in the page: base64 of deflated bytes, so that no byte of a run is ever markup.
 * These are the length of the JSON, the JSON, and the columns of numbers that it names, used in place.
 */
async function decode(packed) {
  const letters = atob(packed);
  const deflated = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at += 1) deflated[at] = letters.charCodeAt(at);
  const inflated = new Response(deflated).body.pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(inflated).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const head = new TextDecoder().decode(new Uint8Array(buffer, 4, length));
  const behind = Math.ceil((4 + length) / 8) * 8;
  return JSON.parse(head, (_, value) => (value?.numbers ? new NUMBERS[value.numbers](buffer, behind + value.at, value.count) : value));
}

/** Make a page of its data; it stands in `window.profd` then. What goes wrong is said on the page. */
async function openPacked(make) {
  try {
    if (!("DecompressionStream" in window)) throw new Error("this browser is too old: it needs DecompressionStream (2023)");
    window.profd = make(await decode(byId("run").textContent));
    document.body.classList.add("ready");
  } catch (error) {
    byId("failure").textContent = `The charts cannot be shown: ${error.message}`;
    byId("failure").hidden = false;
    throw error;
  }
}
