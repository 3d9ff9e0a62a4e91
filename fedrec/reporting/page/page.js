// Sorts tables by a click on a heading, filters long tables, and shows the run of a link.
// Without this script the pages have the same content, in the order of the files.
(function () {
  "use strict";
  const LONG = 24;
  const words = new Intl.Collator("en", { numeric: true });

  // The sort key of a cell: a number, or its text; null for an empty cell.
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

  function rowsOf(table) {
    return Array.from(table.tBodies).flatMap((body) => Array.from(body.rows));
  }

  function sortable(table) {
    const original = rowsOf(table).map((row) => [row.parentElement, row]);
    const headings = Array.from(table.tHead.rows[0].cells);
    // Each group of rows has its own body; sorted rows move to a new one.
    const together = document.createElement("tbody");
    table.append(together);
    headings.forEach((heading, place) => {
      const number = heading.classList.contains("number");
      // The best number first, then reversed, then the order of the file.
      const turns = number ? ["descending", "ascending", null] : ["ascending", "descending", null];
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const next = turns[(turns.indexOf(heading.getAttribute("aria-sort")) + 1) % turns.length];
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        if (next) {
          heading.setAttribute("aria-sort", next);
          together.append(...sorted(original.map(([, row]) => row), place, number, next));
        } else original.forEach(([body, row]) => body.append(row));
      });
    });
  }

  // A filter by the texts of a column; null if all rows have the same text.
  function chooser(heading, rows) {
    const place = heading.cellIndex;
    const texts = new Set(rows.map((row) => row.cells[place].textContent.trim()));
    // Cells that count several verdicts are filtered by words instead.
    const choices = Array.from(texts).filter((text) => !/\d, | \d+$/.test(text)).sort(words.compare);
    if (choices.length < 2) return null;
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.append(new Option("all", ""), ...choices.map((text) => new Option(text, text)));
    label.append(heading.textContent + " ", select);
    return { label, select, fits: (row) => !select.value || row.cells[place].textContent.trim() === select.value };
  }

  function filterable(table) {
    const rows = rowsOf(table);
    const headings = Array.from(table.tHead.rows[0].querySelectorAll("[data-choose]"));
    if (rows.length <= LONG && !headings.length) return;
    const tools = document.createElement("div");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const count = document.createElement("output");
    const choosers = headings.map((heading) => chooser(heading, rows)).filter(Boolean);
    tools.className = "tools";
    input.type = "search";
    input.placeholder = "words, all of them in a row";
    label.append("Filter ", input);
    tools.append(...choosers.map((one) => one.label), label, count);
    table.parentElement.before(tools);
    function apply() {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row) => {
        const text = wanted.length ? row.textContent.toLowerCase() : "";
        const fits = choosers.every((one) => one.fits(row)) && wanted.every((word) => text.includes(word));
        row.hidden = !fits;
        shown += fits ? 1 : 0;
      });
      count.textContent = shown < rows.length ? shown + " of " + rows.length + " rows" : rows.length + " rows";
    }
    [input, ...choosers.map((one) => one.select)].forEach((one) => one.addEventListener("input", apply));
    count.textContent = rows.length + " rows";
  }

  function copied(code, button) {
    const answer = (text) => {
      button.textContent = text;
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    };
    // If the browser offers no clipboard, the command is selected, ready to copy.
    const select = () => {
      window.getSelection().selectAllChildren(code);
      answer("Selected");
    };
    if (!navigator.clipboard) return select();
    navigator.clipboard.writeText(code.textContent).then(() => answer("Copied"), select);
  }

  // Scrolls to the row of the run in the address, and shows the commands that train it.
  function choose(panel) {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const row = target && (target.tagName === "TBODY" ? target.rows[0] : target.closest("tbody tr"));
    panel.hidden = !(row && row.id.startsWith("runs/"));
    if (panel.hidden) return;
    const [, paper, dataset, protocol, , seed] = row.id.split("/");
    const method = row.cells[0].textContent.trim();
    const fields = { folder: row.id, paper, dataset, protocol, method, seed: seed.replace("seed", "") };
    const what = [method, "on " + dataset, protocol, "settings of " + paper, "seed " + fields.seed];
    panel.querySelector("p").textContent =
      what.join(", ") + (target !== row && target.rows.length > 1 ? ", the first of " + target.rows.length : "");
    panel.querySelectorAll("code").forEach((code) => {
      code.textContent = code.dataset.template.replace(/\{(\w+)\}/g, (_, name) => fields[name]);
    });
    row.hidden = false;
    row.scrollIntoView({ block: "center" });
  }

  document.querySelectorAll("table[data-sortable]").forEach((table) => {
    filterable(table);
    sortable(table);
  });
  const panel = document.querySelector(".chosen");
  if (panel) {
    panel.querySelectorAll(".command").forEach((line) => {
      const button = line.querySelector("button");
      button.addEventListener("click", () => copied(line.querySelector("code"), button));
    });
    window.addEventListener("hashchange", () => choose(panel));
    choose(panel);
  }
  // On paper nothing can be unfolded.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = Array.from(document.querySelectorAll(".folded:not([open])"));
    folded.forEach((one) => { one.open = true; });
  });
  window.addEventListener("afterprint", () => folded.forEach((one) => { one.open = false; }));
  // On a phone the contents would fill the screen: closed until asked for.
  if (window.matchMedia("(max-width: 68rem)").matches) document.querySelector(".contents").open = false;
})();
