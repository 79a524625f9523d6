// How numbers, times and paths are written. The rules are those of daemon/units.py; tests/data/units.json checks both.

const UNKNOWN = "-";

/** Return a share as `61.0 %`, never all of what is not all; a dash where the whole is nothing. */
function percent(part, whole) {
  if (part === null || !whole) return UNKNOWN;
  const share = (100 * part) / whole;
  if (share > 0 && share < 0.05) return "<0.1 %";
  return `${(share >= 99.95 && share < 100 - 1e-7 ? 99.9 : share).toFixed(1)} %`;
}

/** Return a whole number as `1,234,567`; the browser's own way loads its tables of all languages first. */
const grouped = (count) => String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ",");

const counted = (count, noun) => `${grouped(count)} ${noun}${Math.round(count) === 1 ? "" : "s"}`;

function bytes(count) {
  if (count === null) return UNKNOWN;
  if (Math.abs(count) < 999.5) return `${count.toFixed(0)} B`;
  for (const unit of ["kB", "MB", "GB"]) {
    count /= 1000;
    if (Math.abs(count) < 999.5) return `${count.toFixed(Math.abs(count) < 9.95 ? 1 : 0)} ${unit}`;
  }
  return `${(count / 1000).toFixed(1)} TB`;
}

/** Return a number with three figures or more. */
const significant = (value) => Math.abs(value) >= 99.95 || !value ? grouped(value) : value.toPrecision(3);

/** Return the time of a step in seconds: `251 ms`. */
function stepTime(seconds) {
  if (seconds >= 59.95) return duration(seconds);
  if (seconds >= 0.9995) return `${significant(seconds)} s`;
  return seconds >= 0.9995e-3 || !seconds ? `${significant(1e3 * seconds)} ms` : `${significant(1e6 * seconds)} µs`;
}

const twoDigits = (count) => String(count).padStart(2, "0");

/** Return a length of time in seconds as `12.3 s`, `2 min 04 s`, `3 h 07 min`, `2 d 05 h`. */
function duration(seconds) {
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${twoDigits(whole % 60)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${twoDigits(minutes % 60)} min`;
  const hours = Math.round(seconds / 3600);
  return `${Math.floor(hours / 24)} d ${twoDigits(hours % 24)} h`;
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

const signedPercent = (share) => (share < 0 ? "-" : "+") + percent(Math.abs(share), 1);

/** Return a time since the start as `1:02:03.4`, with as many decimals as asked for. */
function elapsed(ms, decimals = 0) {
  const sign = ms < 0 ? "-" : "";
  const unit = 1000 / 10 ** decimals;
  let left = Math.round(Math.abs(ms) / unit) * unit;
  const hours = Math.floor(left / 3_600_000);
  left -= hours * 3_600_000;
  const minutes = Math.floor(left / 60_000);
  const seconds = ((left - minutes * 60_000) / 1000).toFixed(decimals).padStart(decimals ? 3 + decimals : 2, "0");
  return hours ? `${sign}${hours}:${twoDigits(minutes)}:${seconds}` : `${sign}${minutes}:${seconds}`;
}

/** Return the decimals that two times need which lie this far from each other. */
const decimalsFor = (ms) => (ms >= 60_000 ? 0 : ms >= 5_000 ? 1 : 2);

/** Return a path that keeps its ends: the outermost package and the file. */
function shortPath(path) {
  const parts = path.split("/");
  return parts.length > 3 ? `${parts[0]}/…/${parts[parts.length - 1]}` : path;
}
