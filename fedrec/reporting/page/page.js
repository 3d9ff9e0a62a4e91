// Tables that sort by a click on a heading, and long ones that can be filtered. Without this script
// the page shows the same, in the order of its files.
(function () {
  "use strict";
  const LONG = 24;
  const words = new Intl.Collator("en", { numeric: true });

  // What a cell is sorted by: a number, or its text; null where there is nothing.
  function key(row, place, number) {
    const cell = row.cells[place];
    const text = cell.textContent.trim();
    if (number) {
      const value = Number(cell.dataset.value ?? text);
      return Number.isNaN(value) ? null : value;
    }
    return text === "–" ? null : text;
  }

  function compare(a, b, number) {
    return number ? (a < b ? -1 : a > b ? 1 : 0) : words.compare(a, b);
  }

  function sorted(rows, place, number, direction) {
    const sign = direction === "descending" ? -1 : 1;
    return rows
      .map((row) => [key(row, place, number), row])
      .sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * compare(a, b, number);
      })
      .map(([, row]) => row);
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const original = Array.from(body.rows);
    const headings = Array.from(table.tHead.rows[0].cells);
    headings.forEach((heading, place) => {
      const number = heading.classList.contains("number");
      // The best number first; then the other way round; then the order of the file.
      const turns = number ? ["descending", "ascending", null] : ["ascending", "descending", null];
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const next = turns[(turns.indexOf(heading.getAttribute("aria-sort")) + 1) % turns.length];
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        if (next) heading.setAttribute("aria-sort", next);
        body.append(...(next ? sorted(original, place, number, next) : original));
      });
    });
  }

  function filterable(table) {
    const rows = Array.from(table.tBodies[0].rows);
    if (rows.length <= LONG) return;
    const tools = document.createElement("div");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const count = document.createElement("output");
    tools.className = "tools";
    input.type = "search";
    input.placeholder = "words, all of them in a row";
    label.append("Filter ", input);
    tools.append(label, count);
    table.parentElement.before(tools);
    const texts = rows.map((row) => row.textContent.toLowerCase());
    function apply() {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, place) => {
        row.hidden = !wanted.every((word) => texts[place].includes(word));
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = wanted.length ? shown + " of " + rows.length + " rows" : rows.length + " rows";
    }
    input.addEventListener("input", apply);
    apply();
  }

  document.querySelectorAll("table[data-sortable]").forEach((table) => {
    sortable(table);
    filterable(table);
  });
  // On paper nothing can be unfolded; what says nothing stays folded there, too.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = Array.from(document.querySelectorAll(".folded:not([open], .untold)"));
    folded.forEach((one) => { one.open = true; });
  });
  window.addEventListener("afterprint", () => folded.forEach((one) => { one.open = false; }));
  // On a phone the contents would fill the screen: closed until asked for.
  if (window.matchMedia("(max-width: 68rem)").matches) document.querySelector(".contents").open = false;
})();
