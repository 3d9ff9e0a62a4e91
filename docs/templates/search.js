// Search in all pages, without a server: the sections lie in a file that is loaded when somebody searches.
(function () {
  "use strict";
  const MOST = 20;
  const box = document.querySelector(".search");
  if (!box) return;
  const input = box.querySelector("input");
  const list = box.querySelector("ol");
  const count = box.querySelector("output");
  let loading = null;

  function loaded() {
    loading ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = box.dataset.up + "search-index.js";
      script.onload = () => done(window.fedrecSections.map(([address, title, heading, text]) => {
        return { address, title, heading, text, names: (title + " " + heading).toLowerCase(), lower: text.toLowerCase() };
      }));
      script.onerror = failed;
      document.head.append(script);
    });
    return loading;
  }

  // How well a section fits: headings count more than text; 0 where a word is nowhere.
  function fit(section, words) {
    let sum = 0;
    for (const word of words) {
      const heading = section.heading.toLowerCase();
      if (heading === word) sum += 20;
      else if (heading.includes(word)) sum += 8;
      else if (section.names.includes(word)) sum += 4;
      else if (section.lower.includes(word)) sum += 1;
      else return 0;
    }
    // Documents come before modules that fit as well.
    return section.title.startsWith("fedrec.") ? sum / 2 : sum;
  }

  function around(section, words) {
    const at = Math.max(0, Math.min(...words.map((word) => section.lower.indexOf(word)).filter((place) => place >= 0)));
    const start = Number.isFinite(at) ? Math.max(0, at - 40) : 0;
    return (start ? "…" : "") + section.text.slice(start, start + 140) + (section.text.length > start + 140 ? "…" : "");
  }

  function show(sections) {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length
      ? sections.map((one) => [fit(one, words), one]).filter(([sum]) => sum).sort(([a], [b]) => b - a)
      : [];
    list.replaceChildren(...found.slice(0, MOST).map(([, one]) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      const small = document.createElement("small");
      link.href = box.dataset.up + one.address;
      link.textContent = one.title === one.heading ? one.title : one.title + ": " + one.heading;
      small.textContent = around(one, words);
      link.append(small);
      item.append(link);
      return item;
    }));
    list.hidden = !found.length;
    count.textContent = !words.length ? "" : found.length > MOST ? MOST + " of " + found.length + " places" : found.length + (found.length === 1 ? " place" : " places");
  }

  function close() {
    list.hidden = true;
    count.textContent = "";
  }

  input.addEventListener("input", () => loaded().then(show, () => { count.textContent = "The index is missing."; }));
  box.addEventListener("keydown", (event) => {
    const stops = [input, ...list.querySelectorAll("a")];
    const here = stops.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && !list.hidden) {
      event.preventDefault();
      stops[Math.max(0, Math.min(stops.length - 1, here + step))].focus();
    } else if (event.key === "Enter" && here === 0 && !list.hidden) {
      stops[1].click();
    } else if (event.key === "Escape") {
      close();
      input.focus();
    }
  });
  list.addEventListener("click", close);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    input.focus();
  });
  document.addEventListener("click", (event) => { if (!box.contains(event.target)) close(); });
  box.hidden = false;
})();
