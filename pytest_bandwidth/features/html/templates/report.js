"use strict";
// Reads the page's data, and turns the finished table into one that sorts, filters and opens. All text from the data is
// set as textContent; nothing is ever parsed as HTML.
(async () => {
  const data = await pageData();
  const bodies = [...document.querySelectorAll("tbody.rows")];

  /* ---- charts ---- */

  const figures = { intensity: "FLOP/byte", gflops: "GFLOP/s" };

  // The tooltip of a result's point shows its row of the table.
  function tipOf(datum, value) {
    const row = rows[data.rowOf[datum?.row]];
    if (!row) return Object.entries(value);
    const cells = [...row.line.cells].slice(2).map((cell, i) => [buttons[i + 2].textContent, cell.textContent]);
    const own = Object.entries(figures).filter(([key]) => key in datum);
    return [
      ["", row.name],
      ...(row.place ? [["in", row.place]] : []),
      ["status", row.status],
      ...cells.filter(([, text]) => text !== "–"),
      ...own.map(([key, label]) => [label, Number(datum[key].toPrecision(3)).toLocaleString("en")]),
    ];
  }

  function clicked(datum) {
    if (Number.isInteger(datum?.row)) openTest(rows[data.rowOf[datum.row]], true);
  }

  /* ---- one test's panel ---- */

  function group(title, content) {
    const box = element("div", "group");
    box.append(element("h3", "", title), content);
    return box;
  }

  function factList(title, facts) {
    const list = element("dl");
    for (const [label, value] of facts) list.append(element("dt", "", label), element("dd", "", value));
    return group(title, list);
  }

  function findingList(findings) {
    const list = element("ul", "found");
    for (const text of findings) list.append(element("li", "", text));
    return group("Findings", list);
  }

  function grid(title, head, lines) {
    const table = element("table");
    const headRow = table.createTHead().insertRow();
    for (const name of head) {
      const cell = element("th", "", name);
      cell.scope = "col";
      headRow.append(cell);
    }
    const lineBody = table.createTBody();
    for (const line of lines) {
      const row = lineBody.insertRow();
      for (const text of line) row.insertCell().textContent = text;
    }
    const scroller = element("div", "grid");
    scroller.tabIndex = 0;
    scroller.setAttribute("role", "region");
    scroller.setAttribute("aria-label", title);
    scroller.append(table);
    return group(title, scroller);
  }

  function codeDiff(text) {
    const box = element("pre", "code");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Changed code");
    for (const line of text.split("\n")) {
      const kind = { "-": "del", "+": "ins" }[line[0]] ?? "span";
      box.append(element(kind, "", `${line}\n`));
    }
    return group("Code: the baseline's (−), this run's (+)", box);
  }

  function panelOf(row) {
    const found = data.panels[row.at];
    const line = element("tr", "panel");
    line.id = `${row.line.id}-panel`;
    const cell = element("td");
    cell.colSpan = buttons.length;
    line.append(cell);
    const where = element("p", "where");
    if (found.source) where.append(element("span", "", found.source));
    const link = element("a", "", "link to this test");
    link.href = `#${row.line.id}`;
    where.append(link);
    // The name is in the row already, unless it was cut there or the key says more.
    if (found.name !== `${row.place}::${row.name}`) cell.append(element("p", "full", found.name));
    cell.append(where);
    if (found.message || found.reason) cell.append(element("p", found.message ? "said" : "said calm", found.message || found.reason));
    const groups = element("div", "groups");
    if (found.findings) groups.append(findingList(found.findings));
    if (found.verdict) groups.append(factList("Verdict", found.verdict));
    if (found.measured) groups.append(factList("Measurement", found.measured));
    if (found.work) groups.append(factList("Work", found.work));
    if (found.conditions) groups.append(grid("Device", ["state", "before", "after"], found.conditions));
    cell.append(groups);
    for (const table of found.tables ?? []) {
      const more = table.more ? ` (${table.more} more not shown)` : "";
      cell.append(grid(`${table.title}${more}`, table.head, table.rows));
    }
    if (found.code) cell.append(codeDiff(found.code));
    return line;
  }

  function toggle(row, open) {
    if (open === Boolean(row.panel)) return;
    row.button.setAttribute("aria-expanded", String(open));
    row.line.classList.toggle("open", open);
    if (open) {
      row.panel = panelOf(row);
      row.line.after(row.panel);
      row.button.setAttribute("aria-controls", row.panel.id);
    } else {
      row.panel.remove();
      row.panel = null;
      row.button.removeAttribute("aria-controls");
    }
  }

  function openTest(row, focus) {
    if (!row) return;
    if (row.line.hidden) clearFilter();
    toggle(row, true);
    row.line.scrollIntoView({ block: "start" });
    if (focus) row.button.focus({ preventScroll: true });
  }

  /* ---- the table ---- */

  const rows = [];
  let order = []; // the rows in their present order
  const groupSize = bodies.length ? bodies[0].children.length : 0;
  const buttons = [...document.querySelectorAll("th button[data-sort]")];
  const find = document.getElementById("find");
  const shown = document.getElementById("shown");
  const chips = [...document.querySelectorAll(".chip")];

  function prepare() {
    for (const [at, line] of bodies.flatMap((body) => [...body.children]).entries()) {
      const label = line.children[1].firstElementChild;
      const button = element("button", "test", label.textContent);
      button.type = "button";
      button.setAttribute("aria-expanded", "false");
      label.replaceWith(button);
      const row = { at, line, button, name: label.textContent, place: line.querySelector(".place")?.textContent, panel: null, hit: true, status: line.children[0].textContent };
      const panel = data.panels[at];
      row.text = `${panel.name}\n${row.status}\n${panel.reason ?? ""}\n${panel.message ?? ""}`.toLowerCase();
      button.addEventListener("click", () => toggle(row, !row.panel));
      rows.push(row);
    }
    order = [...rows];
    for (const button of buttons) {
      button.disabled = false;
      button.addEventListener("click", () => sort(button));
    }
    document.querySelector(".tools").hidden = false;
    document.querySelector(".tools").addEventListener("submit", (event) => event.preventDefault());
    find.addEventListener("input", filter);
    for (const chip of chips) {
      chip.addEventListener("click", () => {
        chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
        filter();
      });
    }
    for (const link of document.querySelectorAll("a[data-status], a[data-severity]")) {
      link.addEventListener("click", () => {
        for (const chip of chips) {
          const wanted = link.dataset.status ? chip.dataset.status === link.dataset.status : chip.classList.contains(link.dataset.severity);
          chip.setAttribute("aria-pressed", String(wanted));
        }
        find.value = "";
        filter();
      });
    }
  }

  function sort(button) {
    const head = button.closest("th");
    const key = button.dataset.sort;
    // Figures start with the largest, names and statuses with the first.
    const first = data.sort[key] ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const direction = head.getAttribute("aria-sort") === first ? other : first;
    for (const { parentElement } of buttons) parentElement.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const values = data.sort[key];
    const compare = values
      ? (a, b) => byNumber(values[a.at], values[b.at], sign) || a.at - b.at
      : key === "name"
        ? (a, b) => sign * collator.compare(a.name, b.name) || a.at - b.at
        : (a, b) => sign * (a.at - b.at);
    order.sort(compare);
    arrange();
  }

  // Fills the groups in the present order; what the filter hides comes last, so that all groups in sight are full.
  function arrange() {
    const all = [...order.filter((row) => row.hit), ...order.filter((row) => !row.hit)];
    for (const [i, body] of bodies.entries()) {
      const group = all.slice(i * groupSize, (i + 1) * groupSize);
      body.replaceChildren(...group.flatMap((row) => (row.panel ? [row.line, row.panel] : [row.line])));
      body.hidden = !group[0].hit;
    }
  }

  const collator = new Intl.Collator("en", { numeric: true });

  // Rows without the figure stay last, whichever way the rest goes.
  function byNumber(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (a - b);
  }

  function filter() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const statuses = new Set(chips.filter((c) => c.getAttribute("aria-pressed") === "true").map((c) => c.dataset.status));
    let count = 0;
    for (const row of rows) {
      const hit = (!statuses.size || statuses.has(row.status)) && words.every((word) => row.text.includes(word));
      row.hit = hit;
      row.line.hidden = !hit;
      if (row.panel) row.panel.hidden = !hit;
      count += hit;
    }
    arrange();
    shown.textContent = `${count === rows.length ? "" : `${count} of `}${rows.length} measurement${rows.length === 1 ? "" : "s"}`;
  }

  function clearFilter() {
    find.value = "";
    for (const chip of chips) chip.setAttribute("aria-pressed", "false");
    filter();
  }

  function followHash() {
    const id = decodeHash();
    openTest(rows.find((row) => row.line.id === id), true);
  }

  function decodeHash() {
    try {
      return decodeURIComponent(location.hash.slice(1));
    } catch {
      return "";
    }
  }

  chartDrawer({ ...data, tipOf, clicked });
  document.getElementById("plain").remove();
  if (bodies.length) {
    prepare();
    followHash();
    addEventListener("hashchange", followHash);
    document.addEventListener("click", (event) => {
      // A link to the test that the address names already does not change the address, and so causes no event.
      const link = event.target.closest?.("a[href^='#t-']");
      if (link && link.hash === location.hash) followHash();
    });
  }
})();
