// Text and elements: how numbers, times and names are written. Data only ever becomes text nodes, never markup.
// Numbers are written as by daemon/units.py; tests/data/units.json holds both to the same rules.

const KILO = 1000;
const UNKNOWN = "-";

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

/** Return a share as `61.0 %`, never all of what is not all; a dash where it rests on nothing. */
function percent(part, whole) {
  if (part === null || !whole) return UNKNOWN;
  const share = (100 * part) / whole;
  if (share > 0 && share < 0.05) return "<0.1 %";
  return `${(share >= 99.95 && share < 100 - 1e-7 ? 99.9 : share).toFixed(1)} %`;
}

/** Return a whole number as `1,234,567`; what the browser has for this loads its tables of all languages first. */
function grouped(count) {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ",");
}

function counted(count, noun) {
  return `${grouped(count)} ${noun}${Math.round(count) === 1 ? "" : "s"}`;
}

function bytes(count) {
  if (count === null) return UNKNOWN;
  if (Math.abs(count) < 999.5) return `${count.toFixed(0)} B`;
  for (const unit of ["kB", "MB", "GB"]) {
    count /= KILO;
    if (Math.abs(count) < 999.5) return `${count.toFixed(Math.abs(count) < 9.95 ? 1 : 0)} ${unit}`;
  }
  return `${(count / KILO).toFixed(1)} TB`;
}

/** Return a number with three figures or more. */
function significant(value) {
  return Math.abs(value) >= 99.95 || !value ? grouped(value) : value.toPrecision(3);
}

/** Return the time of a step or of what is as short, in seconds: `251 ms`. */
function stepTime(seconds) {
  if (seconds >= 59.95) return duration(seconds);
  if (seconds >= 0.9995) return `${significant(seconds)} s`;
  return seconds >= 0.9995e-3 || !seconds ? `${significant(1e3 * seconds)} ms` : `${significant(1e6 * seconds)} µs`;
}

/** Return a length of time in seconds as `12.3 s`, `2 min 04 s`, `3 h 07 min`, `2 d 05 h`. */
function duration(seconds) {
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const two = (count) => String(count).padStart(2, "0");
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
  const hours = Math.round(seconds / 3600);
  return `${Math.floor(hours / 24)} d ${two(hours % 24)} h`;
}

/** Return a measured value in its unit: `share` of 1, `bytes`, `bytes/s` or `s/step`. */
function quantity(value, unit) {
  if (unit === "share") return percent(value, 1);
  return unit === "s/step" ? stepTime(value) : bytes(value) + unit.replace("bytes", "");
}

/** Return a difference with its sign; of shares in points. */
function change(value, unit) {
  const sign = value < 0 ? "-" : "+";
  return sign + (unit === "share" ? `${(100 * Math.abs(value)).toFixed(1)} pts` : quantity(Math.abs(value), unit));
}

/** Return by what part something grew or shrank. */
function signedPercent(share) {
  return (share < 0 ? "-" : "+") + percent(Math.abs(share), 1);
}

/** Return a time since the start as `1:02:03.4`, with as many decimals as asked for. */
function elapsed(ms, decimals = 0) {
  const sign = ms < 0 ? "-" : "";
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

/** Return the most that the standard error of a share can be where the order of stacks is not known (docs/decisions-measurements.md, 8). */
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
