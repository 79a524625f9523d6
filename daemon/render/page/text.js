// Text and elements: how numbers, times and names are written. Data only ever becomes text nodes, never markup.

const KILO = 1000;

function byId(id) {
  return document.getElementById(id);
}

/** Return an element with properties (`class`, `title`, `on…`, or attributes) and children (strings become text). */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Return a share as `61.0 %`; a dash where it rests on nothing. */
function percent(part, whole) {
  if (!whole) return "–";
  const share = (100 * part) / whole;
  return part > 0 && share < 0.05 ? "< 0.1 %" : `${share.toFixed(1)} %`;
}

/** Return a whole number as `1,234,567`; what the browser has for this loads its tables of all languages first. */
function grouped(count) {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ",");
}

function counted(count, noun) {
  return `${grouped(count)} ${noun}${Math.round(count) === 1 ? "" : "s"}`;
}

function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= KILO && unit < units.length - 1) {
    count /= KILO;
    unit += 1;
  }
  return `${count.toFixed(count < 10 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

/** Return a number with three figures. */
function significant(value) {
  return value >= 100 ? grouped(value) : value.toPrecision(3);
}

function cores(value) {
  return `${value.toFixed(value < 10 ? 2 : 1)}`;
}

/** Return a time since the start as `1:02:03.4`, with as many decimals as asked for. */
function elapsed(ms, decimals = 0) {
  const sign = ms < 0 ? "−" : "";
  const unit = 1000 / 10 ** decimals;
  let left = Math.round(Math.abs(ms) / unit) * unit;
  const hours = Math.floor(left / 3_600_000);
  left -= hours * 3_600_000;
  const minutes = Math.floor(left / 60_000);
  const seconds = ((left - minutes * 60_000) / 1000).toFixed(decimals).padStart(decimals ? 3 + decimals : 2, "0");
  return hours ? `${sign}${hours}:${String(minutes).padStart(2, "0")}:${seconds}` : `${sign}${minutes}:${seconds}`;
}

/** Return the decimals that tell two times apart that lie this far from each other. */
function decimalsFor(ms) {
  if (ms >= 60_000) return 0;
  return ms >= 5_000 ? 1 : 2;
}

/** Return the most that the standard error of a share can be where the order of stacks is not known (docs/decisions.md). */
function standardError(share, samples) {
  if (samples <= 1) return 1;
  const bounded = Math.min(Math.max(share, 0.5 / samples), 1 - 0.5 / samples);
  return Math.sqrt((2 * bounded * (1 - bounded)) / samples);
}

/** Say whether the 95 % interval of a share is wider than the share itself: then it is a hint, no number. */
function isUncertain(part, whole, error) {
  if (!whole || !part) return true;
  return 2 * 1.96 * error > part / whole;
}

/** Return a path that keeps its ends: the outermost package and the file. */
function shortPath(path) {
  const parts = path.split("/");
  return parts.length > 3 ? `${parts[0]}/…/${parts[parts.length - 1]}` : path;
}

/** Return a search as a pattern, case ignored; null where it is no regular expression (yet). */
function compile(query) {
  try {
    return new RegExp(query, "i");
  } catch {
    return null;
  }
}
