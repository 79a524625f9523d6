// A table that sorts by a click on its header, and shows its first rows until asked for all.

const FIRST_ROWS = 100;

/**
 * Return a column: a title, `value(row)` to sort by (or the name of a field), and `cell(row)`, text or an element, to
 * show instead. `text(row)` is what a search finds beside that. The column with `first` (`ascending`, `descending`) is the order in which a table opens.
 */
function column(title, value, options = {}) {
  const valueOf = typeof value === "string" ? (row) => row[value] : value;
  return { title, value: valueOf, cell: valueOf, ...options };
}

/** Return a column of numbers, written by `write`; null is unknown, and the least. */
function numberColumn(title, value, write, options = {}) {
  const { value: valueOf } = column(title, value);
  const cell = (row) => (valueOf(row) === null ? UNKNOWN : write(valueOf(row)));
  return { title, numeric: true, value: (row) => valueOf(row) ?? -1, cell, ...options };
}

/** Return a column of texts that may be longer than their cell: all of it is in the tooltip. */
function longColumn(title, field, kind) {
  return column(title, (row) => row[field] ?? "", { kind, hint: (row) => row[field] });
}

/** Return a column of names as buttons, so that a row can be picked by keyboard too. */
function pickColumn(title, field, options = {}) {
  return column(title, field, { cell: (row) => pickButton(row[field]), kind: "name", ...options });
}

const pickButton = (text) => element("button", { class: "pick", type: "button" }, text);

class Table {
  constructor(node, caption, columns, onpick) {
    Object.assign(this, { node, caption, columns, onpick, showsAll: false, pattern: null });
    this.sorted = columns.findIndex((column) => column.first);
    this.descending = columns[this.sorted].first === "descending";
  }

  sortBy(at) {
    this.descending = at === this.sorted ? !this.descending : this.columns[at].numeric === true;
    this.sorted = at;
    this.show(this.rows);
    this.node.querySelectorAll("th button")[at].focus();
  }

  /** Show rows; of a search, a `pattern`, those that it finds. What is not given of `options` stays as it is. */
  show(all, options = {}) {
    Object.assign(this, { rows: all }, options);
    const { value } = this.columns[this.sorted];
    const rows = all.filter((row) => this.finds(row)).sort((a, b) => (this.descending ? -1 : 1) * compare(value(a), value(b)));
    const shown = this.showsAll ? rows : rows.slice(0, FIRST_ROWS);
    const showAll = () => this.show(this.rows, { showsAll: true });
    const table = element("table", {}, element("caption", { class: "hidden" }, this.caption), this.head(), element("tbody", {}, ...shown.map((row) => this.row(row))));
    const more = rows.length > shown.length ? element("button", { class: "more", type: "button", onclick: showAll }, `show all ${grouped(rows.length)}`) : null;
    const nothing = rows.length ? null : element("p", { class: "dim" }, all.length ? "Nothing here matches the search." : "Nothing in this selection.");
    this.node.replaceChildren(...[table, more, nothing].filter(Boolean));
  }

  /** Say whether a search finds a row: by the texts in it, and by the numbers that are names. */
  finds(row) {
    const isFound = (text) => typeof text === "string" && this.pattern.test(text);
    return !this.pattern || this.columns.some((column) => [column.value(row), column.text?.(row), column.hint?.(row)].some(isFound));
  }

  head() {
    const cells = this.columns.map((column, at) => {
      const isSorted = at === this.sorted;
      const arrow = isSorted ? (this.descending ? " ↓" : " ↑") : "";
      const button = element("button", { type: "button", onclick: () => this.sortBy(at) }, column.title + arrow);
      const order = isSorted ? (this.descending ? "descending" : "ascending") : null;
      return element("th", { scope: "col", class: column.numeric ? "number" : "text", "aria-sort": order }, button);
    });
    return element("thead", {}, element("tr", {}, ...cells));
  }

  row(row) {
    const cells = this.columns.map((column) => {
      const kind = [column.numeric ? "number" : "text", column.kind, column.isWeak?.(row) ? "weak" : ""].filter(Boolean).join(" ");
      return element("td", { class: kind, title: column.hint?.(row) }, column.cell(row));
    });
    return element("tr", { class: row.isLibrary ? "library" : null, onclick: this.onpick ? () => this.onpick(row) : null }, ...cells);
  }
}

/** Compare numbers by value, and text by its letters, the same on every machine. */
function compare(a, b) {
  if (typeof a === "number") return a - b;
  const [first, second] = [a.toLowerCase(), b.toLowerCase()];
  return first < second ? -1 : Number(first > second);
}
