// A table that sorts by a click on its header, and shows its first rows until asked for all.

const FIRST_ROWS = 100;

/**
 * Return a column: a title, `value(row)` to sort by (or the name of a field), and `cell(row)`, text or an element, to
 * show instead. The column with `first` (`ascending`, `descending`) is the order in which a table opens.
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
    Object.assign(this, { node, caption, columns, onpick, showsAll: false });
    this.sorted = columns.findIndex((column) => column.first);
    this.descending = columns[this.sorted].first === "descending";
  }

  sortBy(at) {
    this.descending = at === this.sorted ? !this.descending : this.columns[at].numeric === true;
    this.sorted = at;
    this.show(this.rows);
    this.node.querySelectorAll("th button")[at].focus();
  }

  show(unsorted, showsAll = this.showsAll) {
    Object.assign(this, { rows: unsorted, showsAll });
    const { value } = this.columns[this.sorted];
    const rows = [...unsorted].sort((a, b) => (this.descending ? -1 : 1) * compare(value(a), value(b)));
    const shown = this.showsAll ? rows : rows.slice(0, FIRST_ROWS);
    const showAll = () => this.show(this.rows, true);
    const table = element("table", {}, element("caption", { class: "hidden" }, this.caption), this.head(), element("tbody", {}, ...shown.map((row) => this.row(row))));
    const more = rows.length > shown.length ? element("button", { class: "more", type: "button", onclick: showAll }, `show all ${grouped(rows.length)}`) : null;
    const nothing = rows.length ? null : element("p", { class: "dim" }, "Nothing in this selection.");
    this.node.replaceChildren(...[table, more, nothing].filter(Boolean));
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
